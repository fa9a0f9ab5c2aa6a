package etcdlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	// patience bounds what must happen at some time, so that a test fails rather than
	// hangs. Nothing is measured by it.
	patience = 30 * time.Second

	// longTTL keeps renewals from bringing news before what is tested can.
	longTTL = 10 * time.Minute
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newSession(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(within(t), c, append([]session.Option{session.WithTTL(longTTL)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // many a test leaves etcd out of reach
	})
	return s
}

func lock(t *testing.T, l etcdlock.Locker) *etcdlock.Hold {
	t.Helper()
	h, err := l.Lock(within(t))
	require.NoError(t, err)
	return h
}

func unlock(t *testing.T, h *etcdlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(within(t)))
}

// await waits for a channel to be closed or to deliver.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "still waiting for "+what)
		panic("unreachable")
	}
}

// locking locks in the background and delivers what came of it.
func locking(ctx context.Context, l etcdlock.Locker) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx)
		c <- result{h, err}
	}()
	return c
}

type result struct {
	hold *etcdlock.Hold
	err  error
}

// tickets counts the keys in the default namespace.
func tickets(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	answer, err := c.Get(within(t), "etcdlock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	n := 0
	for _, kv := range answer.Kvs {
		if !strings.Contains(string(kv.Key), "!/epoch/") {
			n++
		}
	}
	return n
}

// awaitTickets waits until there are n keys in the default namespace.
func awaitTickets(t *testing.T, c *clientv3.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return tickets(t, c) == n }, patience, 5*time.Millisecond)
}

// awaitWatch waits until the cluster has been asked for one more watch than before.
func awaitWatch(t *testing.T, c *embedtest.Cluster, before int64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Calls("Watch") > before }, patience, 5*time.Millisecond)
}
