package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestOnlyLocksSellWhatThereIs(t *testing.T) {
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	require.Regexp(t, `(?m)^no lock +\d+ +\d+ +[1-9]\d* `, out)
	require.Regexp(t, `(?m)^Mutex +\d+ +200 +0 `, out)
	require.Regexp(t, `(?m)^Striped +\d+ +200 +0 `, out)

	left, err := cluster.Client(t).Get(context.Background(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

func TestScatteredUnitsAreSoldTogether(t *testing.T) {
	ctx := context.Background()
	client := embedtest.Start(t).Client(t)
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	s := stock{client: client, prefix: "shop/", authorise: func(context.Context, Order) error { return nil }}
	for i, units := range []int{0, 1, 0, 2, 1, 0, 0, 0, 0, 1} {
		_, err := client.Do(ctx, s.put(i, units))
		require.NoError(t, err)
	}
	shop := StripedShop{s, sessions, etcdlock.NewStriped(sessions, "stock", segments)}

	var tooFew *TooFewError
	require.ErrorAs(t, shop.Sell(ctx, Order{"greedy", 6}), &tooFew)
	require.Equal(t, 5, tooFew.Left)
	require.NoError(t, shop.Sell(ctx, Order{"one", 4}))
	require.NoError(t, shop.Sell(ctx, Order{"two", 1}))
	require.ErrorAs(t, shop.Sell(ctx, Order{"late", 1}), &tooFew)
	require.Zero(t, tooFew.Left)

	sold, err := audit(ctx, s)
	require.NoError(t, err)
	require.Equal(t, 5, sold.units())
}

func TestChooseTakesOneThatHasEnoughIfThereIs(t *testing.T) {
	for range 100 {
		require.Equal(t, []int{2}, choose([]int{1, 2, 3, 0, 2}, 3))
		require.ElementsMatch(t, []int{0, 2, 3}, choose([]int{1, 0, 1, 1}, 3))
	}
}

func TestAnOrderIsSoldOnce(t *testing.T) {
	ctx := context.Background()
	client := embedtest.Start(t).Client(t)
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	s := stock{client: client, prefix: "shop/", authorise: func(context.Context, Order) error { return nil }}
	_, err := client.Do(ctx, s.put(0, 5))
	require.NoError(t, err)
	shop := LockedShop{s, etcdlock.NewMutex(sessions, "stock")}
	for range 2 { // as after ErrOutcomeUnknown
		require.NoError(t, shop.Sell(ctx, Order{"one", 3}))
	}
	seen, err := s.look(ctx, Order{"another", 1})
	require.NoError(t, err)
	require.Equal(t, view{[]int{2}, seen.revision, false}, seen)
}
