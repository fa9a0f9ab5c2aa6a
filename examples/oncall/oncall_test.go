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

func TestSomebodyStaysOnDuty(t *testing.T) {
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	require.Equal(t, 1, strings.Count(out, "on duty now: nobody"))
	require.Equal(t, 2, strings.Count(out, "on duty now: alice\n")+strings.Count(out, "on duty now: bob\n"))
	require.Equal(t, 1, strings.Count(out, "finds the roster locked"))
	require.Equal(t, 1, strings.Count(out, "was overtaken"))
	require.Equal(t, 4, strings.Count(out, " leaves\n"))
	require.Regexp(t, `(?m)^Mutex .* 7 times$`, out) // all but the one who stays, once each

	left, err := cluster.Client(t).Get(context.Background(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}
