package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	h := lock(t, q.mine)
	token, key := h.Token(), h.Key()
	near := q.wait(t, q.theirs.RLocker(), 1)
	next := q.wait(t, q.mine.RLocker(), 2)
	writer := q.wait(t, q.theirs, 3)
	far := q.wait(t, q.theirs.RLocker(), 4)
	before := q.cluster.AppliedIndex()
	require.NoError(t, h.Downgrade(within(t)))
	require.Equal(t, before+1, q.cluster.AppliedIndex(), "one raft entry, so there is no gap")
	first, second := granted(t, near), granted(t, next)
	require.Equal(t, token, h.Token())
	require.Equal(t, key, h.Key())
	require.True(t, h.Shared())
	require.NoError(t, h.Err())
	_, err := h.Txn(within(t)).Commit()
	require.NoError(t, err)
	requireWaiting(t, writer)
	requireWaiting(t, far)

	unlockAll(t, first, second)
	requireWaiting(t, writer)
	unlock(t, h)
	w := granted(t, writer)
	requireWaiting(t, far)
	unlock(t, w)
	unlock(t, granted(t, far))
	require.Zero(t, tickets(t, q.client))
}

func TestNewReadersShareWithADowngradedWriter(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	h := lock(t, q.mine)
	require.NoError(t, h.Downgrade(within(t)))
	before := q.cluster.AppliedIndex()
	require.NoError(t, h.Downgrade(within(t)), "the second does nothing")
	require.Equal(t, before, q.cluster.AppliedIndex())
	requireBusy(t, q.theirs)
	one := lock(t, q.theirs.RLocker())
	two, err := q.theirs.TryRLock(within(t))
	require.NoError(t, err)
	unlock(t, h)
	requireBusy(t, q.theirs, "they read on without it")
	unlockAll(t, one, two)
}

// A Mutex of the name is the same lock.
func TestTheHoldOfAMutexCanBeDowngraded(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, q.cluster.Client(t)), "orders"))
	require.NoError(t, h.Downgrade(within(t)))
	unlock(t, lock(t, q.mine.RLocker()))
	unlock(t, h)
}

func TestDowngradeAfterALossSaysSoAndCreatesNothing(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	h := lock(t, q.mine)
	remove(t, q.client, h.Key())
	require.NoError(t, h.Err(), "it has not noticed")
	require.ErrorIs(t, h.Downgrade(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	require.False(t, h.Shared())
	require.ErrorIs(t, h.Downgrade(within(t)), etcdlock.ErrLost)
	require.Zero(t, tickets(t, q.client))

	released := lock(t, q.mine)
	unlock(t, released)
	require.ErrorIs(t, released.Downgrade(within(t)), etcdlock.ErrUnlocked)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

// The reply to the downgrade is lost, and the retry finds that it has happened.
func TestALostReplyToADowngradeIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	h := lock(t, q.mine)
	fault := q.cluster.LoseReply("Txn", embedtest.Once())
	require.NoError(t, h.Downgrade(within(t)))
	require.Equal(t, 1, fault.Bites())
	unlock(t, lock(t, q.theirs.RLocker()))
	unlock(t, h)
}

func TestOnlyTheHoldOfASingleWriterCanBeDowngraded(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	reader := lock(t, etcdlock.NewRWMutex(s, "reader").RLocker())
	require.NoError(t, reader.Downgrade(within(t)), "it is what it is to become")
	_, reentrant, err := etcdlock.Reentrant(etcdlock.NewMutex(s, "reentrant")).Lock(within(t))
	require.NoError(t, err)
	stripes, _, err := etcdlock.NewStriped(s, "stripes", 3).AnyN(within(t), 2)
	require.NoError(t, err)
	holds := []*etcdlock.Hold{
		reentrant, stripes,
		lock(t, etcdlock.NewMutex(s, "handed on", etcdlock.WithLocalHandover(aLongTime, 10))),
		lock(t, etcdlock.NewMutex(s, "kept", etcdlock.WithRetention(aLongTime))),
		lock(t, etcdlock.NewSemaphore(s, "permits", 1)),
		lock(t, etcdlock.NewSemaphore(s, "slots", 1, etcdlock.WithSlots())),
		lock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "a"), etcdlock.NewMutex(s, "b"))),
	}
	before := cluster.AppliedIndex()
	for _, h := range holds {
		require.False(t, h.Shared(), h.Name())
		require.ErrorContains(t, h.Downgrade(within(t)), "only the hold of a single Mutex or RWMutex", h.Name())
		require.NoError(t, h.Err())
		require.False(t, h.Shared(), h.Name())
	}
	require.Equal(t, before, cluster.AppliedIndex())
	unlockAll(t, append(holds, reader)...)
}
