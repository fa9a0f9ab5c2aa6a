package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestEachMessageIsHandledOnceWhileTheFleetIsRolledOver(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, fact := range []string{
		`the shares are: node-1 16, node-2 16, node-3 16, node-4 16`,
		`node-4 is stopped`,
		`most moves of one +[12]\n`,
		`node-2 gets SIGKILL`,
		`\d{3,} messages of 64 partitions were handled, each once and in order`,
	} {
		require.Regexp(t, fact, out)
	}
	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}
