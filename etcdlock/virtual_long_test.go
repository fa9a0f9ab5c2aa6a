package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Four hours of holding and two of waiting cost what is documented, and nothing happens
// meanwhile: no raft entry, no loss. The release then wakes the waiter at once.
func TestHoldingForFourHoursAndWaitingForTwo(t *testing.T) {
	const ttl, day = time.Minute, 4 * time.Hour
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster, client *clientv3.Client) {
		h := lock(t, etcdlock.NewMutex(virtualSession(t, client, session.WithTTL(ttl)), "job"))
		began, deadline := time.Now(), h.Deadline()
		keepsItsLock := func(until time.Time) {
			for time.Now().Before(until) {
				time.Sleep(19 * time.Second) // at any time within a TTL, one after the other
				require.NoError(t, h.Err())
				trust := time.Until(h.Deadline())
				require.LessOrEqual(t, trust, ttl-ttl/10)
				require.GreaterOrEqual(t, trust, ttl-ttl/10-ttl/3)
				require.False(t, h.Deadline().Before(deadline), "it never goes back")
				deadline = h.Deadline()
			}
		}
		spent := newExpenses(c)
		keepsItsLock(began.Add(day / 2))
		spent.require(t, 1, 1, day/2, ttl)

		waiter := etcdlock.NewMutex(virtualSession(t, c.Client(t), session.WithTTL(ttl)), "job")
		granted := stopwatch(func() {
			h, err := waiter.Lock(t.Context())
			if err == nil {
				_ = h.Unlock(t.Context())
			}
		})
		time.Sleep(time.Second)
		spent = newExpenses(c)
		keepsItsLock(began.Add(day))
		spent.require(t, 2, 2, time.Since(began)-day/2, ttl)

		released := time.Now()
		unlock(t, h)
		require.Equal(t, released, <-granted, "at once")
	})
}

// expenses is what a cluster has been asked for until then.
type expenses struct {
	cluster                          *embedtest.Cluster
	renewals, watches, reads, writes int64
}

func newExpenses(c *embedtest.Cluster) expenses {
	return expenses{
		cluster: c, renewals: c.Calls("LeaseKeepAlive"), watches: c.Calls("Watch"),
		reads: c.Calls("Range") + c.Calls("Txn"), writes: int64(c.AppliedIndex()),
	}
}

// require says that since then sessions were renewed every TTL/3, that holders
// looked at their key and waiters at two about every 10 s, and nothing was written.
func (e expenses) require(t *testing.T, sessions, looks float64, d, ttl time.Duration) {
	t.Helper()
	now := newExpenses(e.cluster)
	require.InDelta(t, sessions*float64(d/(ttl/3)), now.renewals-e.renewals, 3)
	expected := looks * float64(d/(10*time.Second))
	require.InEpsilon(t, expected, now.watches-e.watches, 0.05, "watches")
	require.InEpsilon(t, expected, now.reads-e.reads, 0.05, "reads")
	require.Equal(t, e.writes, now.writes, "raft entries")
}

// The job is done after a minute, and nobody else gets to do it within the hour, not even
// when the session is closed.
func TestAMinimumHoldOfAnHour(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*session.Keeper, context.Context) error{
		"released": nil, "closed too": (*session.Keeper).Close, "drained too": (*session.Keeper).Drain,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster, client *clientv3.Client) {
				keeper := virtualKeeper(t, client)
				h := lock(t, etcdlock.NewMutex(keeper, "job", etcdlock.WithMinHold(time.Hour)))
				began := time.Now()
				time.Sleep(time.Minute)
				unlock(t, h)
				require.Equal(t, time.Minute, time.Since(began), "nobody waits for it")
				if end != nil {
					require.NoError(t, end(keeper, t.Context()))
				}
				_, err := etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job").Lock(t.Context())
				require.NoError(t, err)
				took := time.Since(began)
				if end == nil {
					require.Equal(t, time.Hour, took)
				}
				require.GreaterOrEqual(t, took, time.Hour)
				require.LessOrEqual(t, took, time.Hour+time.Second+expiryCheck, "a lease has whole seconds")
			})
		})
	}
}
