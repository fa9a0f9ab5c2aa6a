package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// The holder is stuck: it does not look, let alone unlock. What is left of its hold when a
// part has been removed must not keep others waiting.
func TestForcedReleaseOfAPartFreesTheRest(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	mine, theirs := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	parts := func(name string) []etcdlock.Lockable {
		return []etcdlock.Lockable{etcdlock.NewMutex(mine, name), etcdlock.NewMutex(mine, name+" too")}
	}
	tests := map[string]struct{ stuck, next etcdlock.Locker }{
		"numbered permit": {
			etcdlock.NewSemaphore(mine, "numbered permit", 1, etcdlock.WithSlots()),
			etcdlock.NewSemaphore(theirs, "numbered permit", 1, etcdlock.WithSlots()),
		},
		"multi": {
			etcdlock.NewMulti(mine, parts("multi")...),
			etcdlock.NewMulti(theirs, parts("multi")...),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := lock(t, tt.stuck)
			q, err := etcdlock.Inspect(within(t), client, name)
			require.NoError(t, err)
			require.Len(t, q.Places, 1)
			require.NoError(t, etcdlock.ForceRelease(within(t), client, q.Places[0].Key, q.Places[0].Token))
			next := lock(t, tt.next)
			require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
			unlock(t, next)
			require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		})
	}
}

func TestAHoldThatWasNotTakenThroughItCannotBeEntered(t *testing.T) {
	t.Parallel()
	m := etcdlock.NewMutex(newSession(t, embedtest.Start(t).Client(t)), "orders")
	r := etcdlock.Reentrant(m)
	err := etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		_, _, err := r.Lock(ctx)
		require.ErrorIs(t, err, etcdlock.ErrNotReentrant)
		_, _, err = r.TryLock(h.Context())
		require.ErrorIs(t, err, etcdlock.ErrNotReentrant)
		return nil
	})
	require.NoError(t, err)
	_, h, err := r.Lock(within(t))
	require.NoError(t, err)
	unlock(t, h)
}

func TestASemaphoreCanBeForgotten(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	s := etcdlock.NewSemaphore(newSession(t, client), "pool", 2)
	h := lock(t, s)
	require.ErrorIs(t, s.Forget(within(t)), etcdlock.ErrBusy)
	unlock(t, h)
	require.NoError(t, s.Forget(within(t)))
	require.Zero(t, tickets(t, client))
	require.ErrorIs(t, etcdlock.NewSemaphore(newSession(t, client), "", 2).Forget(within(t)), etcdlock.ErrInvalidName)
	require.PanicsWithValue(t, "etcdlock: AtPrefix is not for a Semaphore", func() {
		etcdlock.NewSemaphore(newSession(t, client), "pool", 2, etcdlock.AtPrefix())
	})
}

// Scenario E6: a sick process may not even heed the end of a context.
func TestAHealthCheckThatNeverReturnsDoesNotKeepALeader(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		stuck, calls := make(chan struct{}), make(chan struct{}, 100)
		check := etcdlock.WithHealthCheck(20*time.Millisecond, func(context.Context) error {
			calls <- struct{}{}
			if len(calls) > 2 { // two are before the term
				<-stuck
			}
			return nil
		})
		w := newTerms()
		returned, stop := running(t, etcdlock.NewElection(virtualKeeper(t, cluster.Client(t)), "controller", check), "a", w.work)
		ctx, _ := w.next(t)
		await(t, "the end of the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnhealthy)
		awaitTickets(t, cluster.Client(t), 0)
		finish(t, returned, stop)
		require.LessOrEqual(t, len(calls), 3, "it is not called again until it returns")
		close(stuck)
	})
}
