package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestNoMoneyIsLostOrMade(t *testing.T) {
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	require.Contains(t, out, "from alice to bob: gives up bob after 500ms")
	require.Contains(t, out, "from bob to alice: gives up alice after 500ms")
	require.Contains(t, out, "the other left nothing")
	require.Equal(t, 2, strings.Count(out, "all accounts together have 800 after each"))

	left, err := cluster.Client(t).Get(context.Background(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

func TestATransferIsCarriedOutOnce(t *testing.T) {
	ctx := context.Background()
	cluster := embedtest.Start(t)
	b, closeBank := open(&stage.Etcd{Client: cluster.Client(t), Prefix: "bank/"}, "", approve)
	defer closeBank()
	_, err := b.client.Txn(ctx).Then(b.put("alice", 10), b.put("bob", 0)).Commit()
	require.NoError(t, err)

	for range 2 { // as after ErrOutcomeUnknown
		require.NoError(t, b.Transfer(ctx, Transfer{"one", "alice", "bob", 7}))
	}
	require.ErrorIs(t, b.Transfer(ctx, Transfer{"two", "alice", "bob", 7}), ErrFunds)
	accounts, err := b.client.Get(ctx, b.account(""), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, "3", string(accounts.Kvs[0].Value))
	require.Equal(t, "7", string(accounts.Kvs[1].Value))
}
