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

func TestNeverMoreUsersThanLicences(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, fact := range []string{
		`process-1 gets SIGKILL while its workers are at the shards \[(0 1|0 2|1 2)\]`,
		`its permits have come back after`,
		`shard 0: \d+ items done`,
		`shard 1: \d+ items done`,
		`shard 2: \d+ items done`,
		`most users at a time +6 +3\n`,
		`most at the same shard +3 +1\n`,
		`served +3 +\d+\n`,
		`refused +3 +0\n`,
		`Never more than 3 users, nobody refused`,
	} {
		require.Regexp(t, fact, out)
	}
	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}
