package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// A day of holding and half a day of waiting cost what is documented, and nothing happens
// meanwhile: no raft entry, no loss. The release then wakes the waiter at once.
func TestHoldingForADayAndWaitingForHalfOfIt(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	day := 24 * time.Hour
	if raceDetector {
		day /= 6 // everything takes so much longer
	}
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		s := virtualSession(t, c.Client(t), session.WithTTL(ttl))
		h, err := etcdlock.NewMutex(s, "job").Lock(t.Context())
		require.NoError(t, err)
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
		require.NoError(t, h.Unlock(t.Context()))
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

// require says that since then sessions were renewed every TTL/3, that those who look at a key
// (a holder at its own, a waiter at two) did so about every 10 s, and nothing was written.
func (e expenses) require(t *testing.T, sessions, looks float64, d, ttl time.Duration) {
	t.Helper()
	now := newExpenses(e.cluster)
	require.InDelta(t, sessions*float64(d/(ttl/3)), now.renewals-e.renewals, 3)
	expected := looks * float64(d/(10*time.Second))
	require.InEpsilon(t, expected, now.watches-e.watches, 0.05, "watches")
	require.InEpsilon(t, expected, now.reads-e.reads, 0.05, "reads")
	require.Equal(t, e.writes, now.writes, "raft entries")
}

// Two of three attempts go unanswered, for hours: that is trouble, but no loss.
func TestOneAnswerInThreeKeepsALock(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		s := virtualSession(t, c.Client(t))
		h, err := etcdlock.NewMutex(s, "job").Lock(t.Context())
		require.NoError(t, err)
		var n atomic.Int64
		lost := c.LoseRequest("LeaseKeepAlive", embedtest.When(func(any) bool { return n.Add(1)%3 != 0 }))
		time.Sleep(time.Hour)
		lost.Heal()
		require.NoError(t, h.Err())
		require.Greater(t, lost.Bites(), 300)
		answered := float64(n.Load()) / 3
		require.Less(t, answered, time.Hour.Seconds()/5, "an unanswered attempt takes time")
		require.Greater(t, answered, time.Hour.Seconds()/13.5, "but there is more than one answer in a deadline")
	})
}

// The job is done after a minute, and nobody else gets to do it within the hour, not even
// when the session is closed.
func TestAMinimumHoldOfAnHour(t *testing.T) {
	for name, closed := range map[string]bool{"released": false, "closed too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
				s := virtualSession(t, c.Client(t))
				h, err := etcdlock.NewMutex(s, "job", etcdlock.WithMinHold(time.Hour)).Lock(t.Context())
				require.NoError(t, err)
				began := time.Now()
				time.Sleep(time.Minute)
				require.NoError(t, h.Unlock(t.Context()))
				require.Equal(t, time.Minute, time.Since(began), "nobody waits for it")
				if closed {
					require.NoError(t, s.Close(t.Context()))
				}
				other := etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job")
				granted := stopwatch(func() { _, err = other.Lock(t.Context()) })
				took := (<-granted).Sub(began)
				require.NoError(t, err)
				require.GreaterOrEqual(t, took, time.Hour)
				// A lease has whole seconds.
				require.LessOrEqual(t, took, time.Hour+time.Second+expiryCheck)
			})
		})
	}
}

// A crash of the holder frees the lock after its TTL, however long the minimum is.
func TestACrashIsNotHeldForTheMinimum(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client, link := c.Link(t)
		s := virtualSession(t, client)
		h, err := etcdlock.NewMutex(s, "job", etcdlock.WithMinHold(time.Hour)).Lock(t.Context())
		require.NoError(t, err)
		link.Cut()
		t.Cleanup(func() { link.Heal() })
		began := time.Now()
		_, err = etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job").Lock(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), s.TTL()+expiryCheck)
		require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	})
}

// Two candidates for three hours; whoever leads falls ill after one, and is well again half an
// hour later. The other one takes over with the check that finds it, and work never overlaps.
func TestLeadersThatFallIllTakeTurns(t *testing.T) {
	t.Parallel()
	const check, hours = time.Minute, 3 * time.Hour
	type term struct {
		who          string
		began, ended time.Time
		cause        error
	}
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var terms []term
		began := time.Now()
		var running sync.WaitGroup
		for _, who := range []string{"a", "b"} {
			var sickUntil atomic.Pointer[time.Time]
			health := etcdlock.WithHealthCheck(check, func(context.Context) error {
				if until := sickUntil.Load(); until != nil && time.Now().Before(*until) {
					return errors.New("ill")
				}
				return nil
			})
			e := etcdlock.NewElection(virtualKeeper(t, c.Client(t)), "controller", health)
			running.Go(func() {
				_ = e.Run(ctx, who, func(ctx context.Context, _ *etcdlock.Term) error {
					one := term{who: who, began: time.Now()}
					defer time.AfterFunc(time.Hour+10*time.Second, func() {
						until := time.Now().Add(time.Hour / 2)
						sickUntil.Store(&until)
					}).Stop()
					<-ctx.Done()
					one.ended, one.cause = time.Now(), context.Cause(ctx)
					mu.Lock()
					terms = append(terms, one)
					mu.Unlock()
					return nil
				})
			})
		}
		time.Sleep(hours)
		stop()
		running.Wait()

		require.Len(t, terms, 3)
		require.Equal(t, began, terms[0].began)
		for i, one := range terms[:2] {
			require.ErrorIs(t, one.cause, etcdlock.ErrUnhealthy)
			require.Equal(t, time.Hour+check, one.ended.Sub(one.began), "the first check after it fell ill")
			require.Equal(t, one.ended, terms[i+1].began, "at once")
			require.NotEqual(t, one.who, terms[i+1].who)
		}
		require.Equal(t, began.Add(hours), terms[2].ended)
	})
}

// A waiter's watch that never tells anything costs it one look's time, not the lock: what is
// documented as about 10 s is never more than 15.
func TestASilentWatchCostsNoMoreThanALook(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		holder := etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job")
		waiter := etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job")
		c.LoseReply("Watch", embedtest.When(func(message any) bool {
			return len(message.(*etcdserverpb.WatchResponse).Events) > 0
		}))
		for range 20 {
			h, err := holder.Lock(t.Context())
			require.NoError(t, err)
			granted := stopwatch(func() {
				h, err := waiter.Lock(t.Context())
				if err == nil {
					_ = h.Unlock(t.Context())
				}
			})
			time.Sleep(time.Minute)
			released := time.Now()
			require.NoError(t, h.Unlock(t.Context()))
			require.LessOrEqual(t, (<-granted).Sub(released), 15*time.Second)
		}
	})
}
