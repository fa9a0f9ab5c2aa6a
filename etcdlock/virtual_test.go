package etcdlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// In the virtual_ tests hours of real etcd pass in a moment, and requests take no time, so
// that instants can be compared exactly. Everything else is as it is elsewhere.

// expiryCheck is how often etcd looks for leases that are over.
const expiryCheck = 500 * time.Millisecond

// inVirtualTime runs test beside others, in a bubble, with a cluster of its own and a client of it.
func inVirtualTime(t *testing.T, test func(*testing.T, *embedtest.Cluster, *clientv3.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		test(t, cluster, cluster.Client(t))
	})
}

// virtualClock is the clock that sessions need there.
func virtualClock() session.Option {
	start := time.Now()
	return session.WithClock(func() time.Duration { return time.Since(start) })
}

func virtualSession(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(t.Context(), c, append(opts, virtualClock())...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func virtualKeeper(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Keeper {
	k := session.Keep(c, append(opts, virtualClock())...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// stopwatch runs f in the background and delivers the instant at which it returned.
func stopwatch(f func()) <-chan time.Time {
	c := make(chan time.Time, 1)
	go func() {
		f()
		c <- time.Now()
	}()
	return c
}

// of makes a fault bite only what concerns the lease's renewal.
func of(lease clientv3.LeaseID) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		switch m := message.(type) {
		case *etcdserverpb.LeaseKeepAliveRequest:
			return m.ID == int64(lease)
		case *etcdserverpb.LeaseKeepAliveResponse:
			return m.ID == int64(lease)
		}
		return false
	})
}

// renewals notes when etcd was asked last to renew a lease.
type renewals struct {
	mu   sync.Mutex
	last map[int64]time.Time
}

// noteRenewals notes those that come in from now on.
func noteRenewals(c *embedtest.Cluster) *renewals {
	r := &renewals{last: map[int64]time.Time{}}
	c.LoseRequest("LeaseKeepAlive", embedtest.When(func(message any) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last[message.(*etcdserverpb.LeaseKeepAliveRequest).ID] = time.Now()
		return false
	}))
	return r
}

func (r *renewals) of(lease clientv3.LeaseID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[int64(lease)]
}
