package etcdlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// It is far longer than the test, so that it must have been stopped from counting to be over.
const aLongTime = time.Hour

func TestAReleaseTakesEffectNoEarlierThanAsked(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
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

// A hold that lasts longer than the minimum anyway, or is lost, is not kept any longer.
func TestAMinimumIsNoMatterAfterItOrAfterALoss(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(keeper, "job", etcdlock.WithMinHold(time.Nanosecond)))
	unlock(t, h)
	require.Zero(t, tickets(t, client))

	lingering := etcdlock.NewMutex(keeper, "job", etcdlock.WithMinHold(aLongTime))
	h = lock(t, lingering)
	revoke(t, client, current(t, keeper)) // a crash
	next := lock(t, etcdlock.NewMutex(newSession(t, client), "job"))
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, next.Err())
	require.Equal(t, 1, tickets(t, client))
	unlock(t, next)

	h = lock(t, lingering)
	remove(t, client, h.Key())
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Zero(t, tickets(t, client), "what was deleted does not come back")
}

// It would take the key back to the session's lease.
func TestALateDowngradeDoesNotShortenAMinimum(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewRWMutex(s, "data", etcdlock.WithMinHold(aLongTime)))
	arrive := heldUp(t, cluster, h.Downgrade)
	unlock(t, h)
	arrive()
	require.NoError(t, s.Close(within(t)))
	require.Equal(t, 1, tickets(t, client), "the minimum is not over")
}
