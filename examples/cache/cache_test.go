package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestTheCacheIsOldOnlyWithoutALock(t *testing.T) {
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	require.Equal(t, 1, strings.Count(out, "0 say 90, and 100 say 100"))
	require.Equal(t, 2, strings.Count(out, "the writer finds that prices are locked"))
	require.Equal(t, 2, strings.Count(out, "100 say 90, and 0 say 100"))
	require.Regexp(t, `(?m)^Mutex +\d+ +\d+ +0 `, out)
	require.Regexp(t, `(?m)^RWMutex +\d+ +\d+ +0 `, out)

	left, err := cluster.Client(t).Get(context.Background(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}
