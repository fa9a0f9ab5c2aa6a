package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// It is far longer than the test, so that it must have been stopped from counting to be over.
const aLongTime = time.Hour

func TestAReleaseTakesEffectNoEarlierThanAsked(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s, client := newSession(t, cluster.Client(t)), cluster.Client(t)
	lingers := etcdlock.WithMinHold(aLongTime)
	for name, l := range map[string]etcdlock.Locker{
		"job": etcdlock.NewMutex(s, "job", lingers), "data": etcdlock.NewRWMutex(s, "data", lingers),
		"pool": etcdlock.NewSemaphore(s, "pool", 2, lingers, etcdlock.WithSlots()),
		"part": allOf(s, "part", "other").With(lingers),
		"deep": outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "deep", lingers))},
	} {
		h := lock(t, l)
		unlock(t, h)
		require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
		requireBusy(t, etcdlock.NewMutex(newSession(t, client), name), name)
		require.NoError(t, h.Unlock(within(t)))
		for _, key := range keysOf(h) {
			answer, err := client.Get(within(t), key)
			require.NoError(t, err)
			require.Len(t, answer.Kvs, 1)
			require.NotEqualValues(t, s.Lease(), answer.Kvs[0].Lease, "it has a lease of its own")
		}
	}
	require.NoError(t, s.Close(within(t)))
	for _, name := range []string{"job", "data", "pool", "part", "other", "deep"} {
		requireBusy(t, etcdlock.NewMutex(newSession(t, client), name), "the session is closed, and %s is taken all the same", name)
	}
}

func TestTheNextInLineGetsInWhenTheMinimumIsOver(t *testing.T) {
	t.Parallel()
	const minimum = 1500 * time.Millisecond
	for _, closed := range []bool{false, true} {
		cluster := embedtest.Start(t)
		s := newSession(t, cluster.Client(t))
		began := time.Now()
		h := lock(t, etcdlock.NewMutex(s, "job", etcdlock.WithMinHold(minimum)))
		unlock(t, h)
		if closed {
			require.NoError(t, s.Close(within(t)))
		}
		next := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "job"))
		require.GreaterOrEqual(t, time.Since(began), minimum)
		require.Greater(t, next.Token(), h.Token())
		unlock(t, next)
		requireNothingLeft(t, cluster.Client(t))
	}
}

// Who holds longer than that anyway, or dies, is not kept any longer.
func TestAMinimumIsNoMatterAfterItOrAfterALoss(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	h := lock(t, etcdlock.NewMutex(keeper, "job", etcdlock.WithMinHold(time.Nanosecond)))
	unlock(t, h)
	require.Zero(t, tickets(t, client))

	lingering := etcdlock.NewMutex(keeper, "job", etcdlock.WithMinHold(aLongTime))
	h = lock(t, lingering)
	s := current(t, keeper)
	revoke(t, client, s) // a crash
	next := lock(t, etcdlock.NewMutex(newSession(t, client), "job"))
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, next.Err())
	require.Equal(t, 1, tickets(t, client))
	unlock(t, next)

	h = lock(t, lingering)
	remove(t, client, h.Key())
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Zero(t, tickets(t, client), "what was deleted does not come back")
	require.NoError(t, keeper.Close(within(t)))
}

// What is left of it would keep others from the other locks for that time.
func TestAHoldOfSeveralThatHasLostOneIsKeptNoLonger(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, allOf(newSession(t, cluster.Client(t)), "part", "other").With(etcdlock.WithMinHold(aLongTime)))
	remove(t, client, h.Key())
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	awaitTickets(t, client, 0)
}

// It would take the key back to the session's lease.
func TestALateDowngradeDoesNotShortenAMinimum(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewRWMutex(s, "data", etcdlock.WithMinHold(aLongTime)))
	held := cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		_ = held.Wait(ctx)
		cancel()
	}()
	require.ErrorIs(t, h.Downgrade(ctx), context.Canceled)
	unlock(t, h)
	entries := cluster.AppliedIndex()
	held.Heal()
	require.Eventually(t, func() bool { return cluster.AppliedIndex() > entries }, patience, time.Millisecond)
	require.NoError(t, s.Close(within(t)))
	require.Equal(t, 1, tickets(t, client), "the minimum is not over")
}
