package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/etcdlock"
)

func TestAnUpgradeMakesAWriterOfAReaderWithoutAGap(t *testing.T) {
	q := newLine(t)
	h, err := q.mine.LockUpgradeable(within(t))
	require.NoError(t, err)
	token, key := h.Token(), h.Key()
	require.True(t, h.Shared())
	reader, err := q.theirs.TryRLock(within(t))
	require.NoError(t, err)
	_, err = q.theirs.TryLockUpgradeable(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	writer := queued(t, q.client, q.theirs, 2)
	upgrade := background(func() error { return h.Upgrade(within(t)) })
	awaitTickets(t, q.client, 4)
	late := queued(t, q.client, q.theirs.RLocker(), 4)
	require.Empty(t, upgrade)
	require.True(t, h.Shared())
	unlock(t, reader)
	require.NoError(t, await(t, "the upgrade", upgrade))
	require.False(t, h.Shared())
	require.Equal(t, token, h.Token())
	require.Equal(t, key, h.Key())
	require.NoError(t, h.Upgrade(within(t)), "it does nothing")
	_, err = h.Txn(within(t)).Commit()
	require.NoError(t, err)
	requireWaiting(t, writer)
	requireWaiting(t, late)
	require.Equal(t, 3, tickets(t, q.client))

	require.NoError(t, h.Downgrade(within(t)))
	require.True(t, h.Shared())
	require.NoError(t, h.Upgrade(within(t)), "again")
	unlock(t, h)
	written := granted(t, writer)
	require.Greater(t, written.Token(), token)
	unlock(t, written)
	unlock(t, granted(t, late))
	require.Zero(t, tickets(t, q.client))
}

func TestADowngradedWriterCanBeUpgradedAgain(t *testing.T) {
	q := newLine(t)
	for _, l := range []etcdlock.Locker{q.mine, etcdlock.NewMutex(newSession(t, q.cluster.Client(t)), "orders")} {
		h := lock(t, l)
		require.NoError(t, h.Downgrade(within(t)))
		reader := lock(t, q.theirs.RLocker())
		upgrade := background(func() error { return h.Upgrade(within(t)) })
		awaitTickets(t, q.client, 3)
		unlock(t, reader)
		require.NoError(t, await(t, "the upgrade", upgrade))
		requireBusy(t, q.theirs.RLocker())
		unlock(t, h)
	}
}

func TestAnUpgradeThatIsGivenUpLeavesAReader(t *testing.T) {
	q := newLine(t)
	reader := lock(t, q.theirs.RLocker())
	h := lock(t, q.mine.Upgradeable())
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Upgrade(ctx), context.DeadlineExceeded)
	require.NoError(t, h.Err())
	require.True(t, h.Shared())
	unlock(t, lock(t, q.theirs.RLocker()))

	// Another call at the same time, and the end of the hold.
	upgrade := background(func() error { return h.Upgrade(within(t)) })
	awaitTickets(t, q.client, 3)
	require.ErrorContains(t, h.Upgrade(within(t)), "by another call")
	unlock(t, h)
	require.ErrorIs(t, await(t, "the upgrade", upgrade), etcdlock.ErrUnlocked)
	unlock(t, reader)
	requireNothingLeft(t, q.client)
}

func TestAnUpgradeAfterALossSaysSo(t *testing.T) {
	q := newLine(t)
	h := lock(t, q.mine.Upgradeable())
	remove(t, q.client, h.Key())
	require.ErrorIs(t, h.Upgrade(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Zero(t, tickets(t, q.client))
}

// Each would wait for its own hold.
func TestWhatWouldWaitForItsOwnReaderIsRefused(t *testing.T) {
	q := newLine(t)
	reader, h := lock(t, q.mine.RLocker()), lock(t, q.mine.Upgradeable())
	require.ErrorIs(t, reader.Upgrade(within(t)), etcdlock.ErrUpgrade, "a reader that is not upgradeable")
	for _, shared := range []*etcdlock.Hold{reader, h} {
		ctx, cancel := context.WithTimeout(shared.Context(), patience)
		for _, l := range []etcdlock.Locker{q.mine, q.mine.Upgradeable()} {
			for _, call := range bothCalls(l) {
				_, err := call(ctx)
				require.ErrorIs(t, err, etcdlock.ErrUpgrade)
			}
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(reader.Context(), patience)
	defer cancel()
	require.ErrorIs(t, h.Upgrade(ctx), etcdlock.ErrUpgrade)
	unlock(t, reader)
	require.NoError(t, h.Upgrade(h.Context()), "its own context is no obstacle")
	unlock(t, h)

	for _, other := range []*etcdlock.Hold{lock(t, etcdlock.NewSemaphore(newSession(t, q.client), "permits", 1)), lock(t, allOf(newSession(t, q.client), "a", "b"))} {
		require.ErrorContains(t, other.Upgrade(within(t)), "only the hold of a single Mutex or RWMutex")
		unlock(t, other)
	}
}

// The time that it stays taken begins with the grant, and it stays what it is at its end.
func TestAMinimumHoldKeepsWhatTheHoldWas(t *testing.T) {
	q := newLine(t)
	long := etcdlock.NewRWMutex(newSession(t, q.cluster.Client(t)), "orders", etcdlock.WithMinHold(aLongTime))
	h := lock(t, long.Upgradeable())
	unlock(t, h)
	unlock(t, lock(t, q.theirs.RLocker()))
	requireBusy(t, q.theirs)
	remove(t, q.client, h.Key())

	h = lock(t, long.Upgradeable())
	require.NoError(t, h.Upgrade(within(t)))
	unlock(t, h)
	requireBusy(t, q.theirs.RLocker())
	remove(t, q.client, h.Key())
}

func TestAnUpgradeIsShown(t *testing.T) {
	q := newLine(t)
	reader, h := lock(t, q.theirs.RLocker()), lock(t, q.mine.Upgradeable())
	kinds := func() (kinds []string) {
		for _, p := range inspect(t, q.client, "orders").Places {
			kinds = append(kinds, p.Kind)
			require.Equal(t, p.Kind != "exclusive" || p.Token == h.Token(), p.Holding)
		}
		return kinds
	}
	require.Equal(t, []string{"shared", "upgradeable"}, kinds())
	upgrade := background(func() error { return h.Upgrade(within(t)) })
	awaitTickets(t, q.client, 3)
	require.Equal(t, []string{"shared", "upgradeable", "exclusive"}, kinds())
	unlock(t, reader)
	require.NoError(t, await(t, "the upgrade", upgrade))
	require.Equal(t, []string{"exclusive"}, kinds())
	unlock(t, h)
}

// What a failed Downgrade has done cannot be known. The failed Upgrade makes the hold a reader's.
func TestAnUpgradeThatFailsAfterAFailedDowngradeLeavesAReader(t *testing.T) {
	q := newLine(t)
	h := lock(t, q.mine)
	disarm := fillUp(t, q.cluster)
	require.ErrorIs(t, h.Downgrade(within(t)), rpctypes.ErrNoSpace)
	require.ErrorIs(t, h.Upgrade(within(t)), rpctypes.ErrNoSpace)
	require.True(t, h.Shared())
	disarm()
	unlock(t, lock(t, q.theirs.RLocker()))
	require.NoError(t, h.Upgrade(within(t)))
	require.False(t, h.Shared())
	unlock(t, h)
}
