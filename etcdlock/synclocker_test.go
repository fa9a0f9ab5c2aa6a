package etcdlock_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func inAndOut(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
}

// noTrouble is for lockers that are to have none.
func noTrouble(t *testing.T) func(error) {
	return func(err error) { t.Error(err) }
}

// reporting delivers the errors of a locker.
func reporting(l etcdlock.Locker) (sync.Locker, <-chan error) {
	errs := make(chan error, 10)
	return etcdlock.NewLocker(l, func(err error) { errs <- err }), errs
}

func TestSyncLockersExcludeEachOther(t *testing.T) {
	cluster, client := newCluster(t)
	one := etcdlock.NewLocker(newMutex(t, cluster), noTrouble(t))
	two := etcdlock.NewLocker(newMutex(t, cluster), noTrouble(t))
	var working sync.WaitGroup
	count := 0 // guarded by the lock: -race sees it if it is not, and so does the sum
	for _, l := range []sync.Locker{one, one, two, two} {
		working.Go(func() {
			for range 20 {
				l.Lock()
				count++
				l.Unlock()
			}
		})
	}
	working.Wait()
	require.Equal(t, 80, count)
	require.Zero(t, tickets(t, client))
}

func TestASyncLockerOfASharedLockIsSharedAsWell(t *testing.T) {
	cluster, _ := newCluster(t)
	m := etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "orders")
	l := etcdlock.NewLocker(m.RLocker(), noTrouble(t))
	l.Lock()
	inAndOut(l)
	requireBusy(t, m)
	l.Unlock()
	unlock(t, tryLock(t, m))
}

func TestUnlockOfAnUnlockedSyncLockerPanics(t *testing.T) {
	cluster, _ := newCluster(t)
	l := etcdlock.NewLocker(newMutex(t, cluster), noTrouble(t))
	require.PanicsWithValue(t, "etcdlock: unlock of an unlocked locker", l.Unlock)
	inAndOut(l)
	require.PanicsWithValue(t, "etcdlock: unlock of an unlocked locker", l.Unlock)
	inAndOut(l) // a panic has not locked anything up
}

func TestASyncLockerTellsOfALossAndItsUnlockHarmsNobody(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	l, trouble := reporting(etcdlock.NewMutex(s, "orders"))
	l.Lock()
	lose(t, client, s)
	err := await(t, "the news of the loss", trouble)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, `"orders"`)

	next := lock(t, newMutex(t, cluster))
	l.Unlock()
	require.ErrorIs(t, await(t, "the outcome of the release", trouble), etcdlock.ErrLost)
	require.NoError(t, next.Err())
	require.Equal(t, 1, tickets(t, client))
	unlock(t, next)
	require.Empty(t, trouble)
}

// The user that has lost the lock, and the one that has locked again, unlock in either order. The lock is kept for
// as long as one of them may be at work.
func TestAfterALossASyncLockerIsKeptUntilBothHaveUnlocked(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	other := newMutex(t, cluster)
	l, trouble := reporting(etcdlock.NewMutex(keeper, "orders"))
	l.Lock()
	lose(t, client, current(t, keeper))
	require.ErrorIs(t, await(t, "the news of the loss", trouble), etcdlock.ErrLost)
	l.Lock()
	require.Empty(t, trouble)
	l.Unlock()
	require.ErrorIs(t, await(t, "the outcome of the first", trouble), etcdlock.ErrLost)
	requireBusy(t, other, "it may have been the Unlock of the holder that lost the lock")
	l.Unlock()
	unlock(t, tryLock(t, other))
	require.Empty(t, trouble)
}

func TestASyncLockerTellsWhyItCannotLockAndTriesAgain(t *testing.T) {
	cluster, client := newCluster(t)
	l, trouble := reporting(newMutex(t, cluster))
	cluster.Refuse("Txn", rpctypes.ErrPermissionDenied, embedtest.Once())
	l.Lock()
	require.ErrorIs(t, await(t, "the refusal", trouble), rpctypes.ErrPermissionDenied)
	require.Equal(t, 1, tickets(t, client))
	l.Unlock()
	require.Empty(t, trouble)
}
