package main

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/embedtest"
)

var withPrefix = clientv3.WithPrefix()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServiceIsWatchedAndEnds(t *testing.T) {
	client := embedtest.Start(t).Client(t)
	registry := prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, client, "me", registry) }()
	require.Eventually(t, func() bool {
		n, err := testutil.GatherAndCount(registry, "etcdlock_hold_duration_seconds", "etcdlock_election_leading")
		return err == nil && n == 3 // the holds of the mutex and of the election, and the leader
	}, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	answer, err := client.Get(t.Context(), "etcdlock/", withPrefix)
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
}
