package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var errWork = errors.New("work failed")

func TestDoReleasesWhateverBecomesOfTheWork(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	var seen *etcdlock.Hold
	work := func(outcome func() error) func(context.Context, *etcdlock.Hold) error {
		return func(ctx context.Context, h *etcdlock.Hold) error {
			require.NoError(t, ctx.Err())
			require.NoError(t, h.Err())
			seen = h
			return outcome()
		}
	}
	require.NoError(t, etcdlock.Do(within(t), m, work(func() error { return nil })))
	require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked)
	require.ErrorIs(t, etcdlock.Do(within(t), m, work(func() error { return errWork })), errWork)
	require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked)
	require.PanicsWithValue(t, "work panicked", func() {
		_ = etcdlock.Do(within(t), m, work(func() error { panic("work panicked") }))
	})
	require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked)
	require.Zero(t, tickets(t, client))
}

func TestTryDoDoesNothingIfItWouldHaveToWait(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	held := lock(t, m)
	require.ErrorIs(t, etcdlock.TryDo(within(t), m, func(context.Context, *etcdlock.Hold) error {
		t.Error("called without the lock")
		return nil
	}), etcdlock.ErrBusy)
	unlock(t, held)
	require.ErrorIs(t, etcdlock.TryDo(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		require.NoError(t, etcdlock.RequireHeld(ctx, "orders"))
		require.NoError(t, h.Err())
		return errWork
	}), errWork)
	require.Zero(t, tickets(t, client))
}

func TestDoPassesOnWhyItCouldNotLock(t *testing.T) {
	cluster, _ := newCluster(t)
	m := newMutex(t, cluster)
	err := etcdlock.Do(cancelled(), m, func(context.Context, *etcdlock.Hold) error {
		t.Error("ran without the lock")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheContextOfTheWorkEndsWithTheCallers(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	ctx, cancel := context.WithCancelCause(within(t))
	err := etcdlock.Do(ctx, m, func(ctx context.Context, h *etcdlock.Hold) error {
		cancel(errWork)
		await(t, "the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), errWork)
		require.NoError(t, h.Err(), "the lock is held until the work is done")
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, etcdlock.ErrLost)
	require.Zero(t, tickets(t, client), "released although the context was over")
}

// The context of the work ends as soon as the work unlocks; the release goes on.
func TestTheWorkMayUnlockWithItsOwnContext(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	for range 50 {
		require.NoError(t, etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
			return h.Unlock(ctx)
		}))
		require.Zero(t, tickets(t, client))
	}
}

// What happens to the session while the lock is being released is not the work's loss.
func TestALossDuringTheReleaseIsNoErrorOfDo(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	silence := cluster.LoseRequest("Txn", embedtest.When(func(message any) bool { return !creates(message) }))
	defer silence.Heal()
	revoker := client
	go func() {
		if silence.Wait(context.Background()) == nil { // the release is under way
			_, _ = revoker.Revoke(context.Background(), s.Lease())
			_ = s.Renew(context.Background())
		}
	}()
	err := etcdlock.Do(within(t), etcdlock.NewMutex(s, "orders"), func(_ context.Context, h *etcdlock.Hold) error {
		return h.Err()
	})
	require.NoError(t, err)
	require.ErrorIs(t, s.Err(), etcdlock.ErrLost)
}

func TestALossIsReportedEvenIfTheWorkUnlocks(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	err := etcdlock.Do(within(t), etcdlock.NewMutex(s, "orders"), func(ctx context.Context, h *etcdlock.Hold) error {
		_, err := client.Revoke(ctx, s.Lease())
		require.NoError(t, err)
		require.ErrorIs(t, s.Renew(ctx), etcdlock.ErrLost)
		await(t, "the loss", h.Done())
		require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, etcdlock.ErrLost)
}

// The machine has slept for too long, and no timer has told yet.
func TestALossThatTheClockTellsTheWorksUnlockIsReported(t *testing.T) {
	cluster, _ := newCluster(t)
	now, jump := clockOf()
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t), session.WithClock(now)), "orders")
	err := etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		jump(longTTL)
		require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, etcdlock.ErrLost)
}

// It is the work's release that finds the key gone, and nothing did before.
func TestALossThatOnlyTheWorksUnlockFindsOutIsReported(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	for _, l := range []etcdlock.Locker{m, outermost{etcdlock.Reentrant(m)}} {
		err := etcdlock.Do(within(t), l, func(ctx context.Context, h *etcdlock.Hold) error {
			_, err := client.Delete(ctx, h.Key())
			require.NoError(t, err)
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return nil
		})
		require.ErrorIs(t, err, etcdlock.ErrLost)
	}
}

func TestTheContextOfTheWorkEndsWithTheLock(t *testing.T) {
	cluster, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	finished := false
	before := cluster.Calls("Watch")
	err := etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		awaitWatch(t, cluster, before)
		remove(t, client, h.Key())
		await(t, "the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrLost)
		finished = true
		return nil
	})
	require.True(t, finished, "Do waits for the work")
	require.ErrorIs(t, err, etcdlock.ErrLost, "although the work was content")
}
