package etcdlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const noBound = time.Hour

// handedOn is without a bound that would be reached.
var handedOn = etcdlock.WithLocalHandover(noBound, 1_000)

// local is the mutex "orders" that goroutines of one process share, and that of another process.
type local struct {
	cluster  *embedtest.Cluster
	client   *clientv3.Client
	keeper   *session.Keeper // of m
	m, other *etcdlock.Mutex
}

// withLocal runs test in virtual time, where etcd always confirms an ownership in time.
func withLocal(t *testing.T, test func(*testing.T, *local), opts ...etcdlock.Option) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		keeper := virtualKeeper(t, cluster.Client(t))
		other := etcdlock.NewMutex(virtualSession(t, cluster.Client(t)), "orders")
		test(t, &local{cluster, client, keeper, etcdlock.NewMutex(keeper, "orders", opts...), other})
		requireNothingLeft(t, client)
	})
}

// lineUp has n goroutines lock m one after the other, in virtual time. Each is in its place before the next one comes.
func lineUp(t *testing.T, ctx context.Context, m *etcdlock.Mutex, n int) (waiting []<-chan result) {
	t.Helper()
	for range n {
		waiting = append(waiting, lockingLocally(t, ctx, m))
		synctest.Wait() // it may have been counted, and not wait yet
	}
	return waiting
}

// lockingLocally locks m in the background, and returns when that counts as waiting in memory.
func lockingLocally(t *testing.T, ctx context.Context, m *etcdlock.Mutex) <-chan result {
	t.Helper()
	before := etcdlock.WaitingLocally(m)
	waiting := locking(ctx, m)
	require.Eventually(t, func() bool { return etcdlock.WaitingLocally(m) == before+1 }, patience, waitABit)
	return waiting
}

// The bound is for the sake of others.
func TestGoroutinesHandTheLockOnInOrderAndEtcdWritesNothing(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]etcdlock.Option{
		"within the bound":            handedOn,
		"alone beyond it in time":     etcdlock.WithLocalHandover(1, 1_000),
		"alone beyond it by a number": etcdlock.WithLocalHandover(noBound, 1),
	} {
		t.Run(name, func(t *testing.T) {
			withLocal(t, func(t *testing.T, l *local) {
				h := lock(t, l.m)
				waiting := lineUp(t, within(t), l.m, 20)
				token, entries := h.Token(), l.cluster.AppliedIndex()
				for i, w := range waiting {
					requireWaiting(t, waiting[i:]...)
					unlock(t, h)
					h = granted(t, w)
					require.Equal(t, token, h.Token(), "the token stays the same")
				}
				require.Equal(t, entries, l.cluster.AppliedIndex())
				unlock(t, h)
			}, option)
		})
	}
}

func TestAfterTheBoundOthersHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option etcdlock.Option
		served int
	}{
		"in number": {etcdlock.WithLocalHandover(noBound, 3), 3},
		"in time":   {etcdlock.WithLocalHandover(1, 1_000), 1}, // over as soon as it begins
	} {
		t.Run(name, func(t *testing.T) {
			withLocal(t, func(t *testing.T, l *local) {
				h := lock(t, l.m)
				first := h.Token()
				waiting := lineUp(t, within(t), l.m, 5)
				remote := queued(t, l.client, l.other, 1)
				for range c.served - 1 {
					unlock(t, h)
					h, waiting = granted(t, waiting[0]), waiting[1:]
					require.Equal(t, first, h.Token())
				}
				requireWaiting(t, remote)
				unlock(t, h)
				theirs := granted(t, remote)
				require.Greater(t, theirs.Token(), first)
				requireWaiting(t, waiting...)
				unlock(t, theirs)
				for _, w := range waiting {
					h = granted(t, w)
					require.Greater(t, h.Token(), theirs.Token())
					unlock(t, h)
				}
			}, c.option)
		})
	}
}

// The bound holds although etcd does not say whether there is anybody.
func TestAnOwnerWithoutAnAnswerGivesItsTicketBack(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := lock(t, l.m)
		waiting := lineUp(t, within(t), l.m, 1)
		remote := queued(t, l.client, l.other, 1)
		held := l.cluster.Hold("Txn", embedtest.Once()) // until the end
		unlock(t, h)
		require.NoError(t, held.Wait(within(t)))
		unlock(t, granted(t, remote))
		unlock(t, granted(t, waiting[0]))
		held.Heal()
	}, etcdlock.WithLocalHandover(1, 1_000))
}

// Most give up at about the moment at which they are granted. entries is guarded by the lock alone.
func TestALocalWaiterThatGivesUpAtItsGrantHarmsNobody(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 1_000_000))
	entries := 0
	var granted, gaveUp atomic.Int64
	var working sync.WaitGroup
	until := time.Now().Add(time.Second)
	for i := range 8 {
		patient := i < 2 // so that there is somebody to hand on
		working.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithCancel(t.Context())
				if !patient {
					time.AfterFunc(rand.N(200*time.Microsecond), cancel)
				}
				h, err := m.Lock(ctx)
				if err == nil {
					entries++
					granted.Add(1)
					err = h.Unlock(t.Context())
				} else if !patient && errors.Is(err, context.Canceled) {
					gaveUp.Add(1)
					err = nil
				}
				cancel()
				assert.NoError(t, err)
			}
		})
	}
	working.Wait()
	require.EqualValues(t, granted.Load(), entries)
	require.Positive(t, gaveUp.Load())
	requireNothingLeft(t, client)
}

func TestALocalWaiterThatLeavesInItsTurnKeepsNothing(t *testing.T) {
	cluster, client := newCluster(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	m := newMutex(t, cluster, handedOn, etcdlock.WithHooks(&etcdlock.Hooks{
		Waiting: func(etcdlock.Waiting) { entered <- struct{}{}; <-leave },
	}))
	for range 8 { // it may notice its turn or the end of its context first
		h := lock(t, m)
		ctx, cancel := context.WithCancel(within(t))
		waiting := locking(ctx, m)
		await(t, "the waiter", entered)
		unlock(t, h) // which hands it on
		cancel()
		leave <- struct{}{}
		require.ErrorIs(t, await(t, "giving up", waiting).err, context.Canceled)
		requireNothingLeft(t, client)
	}
	lock(t, m)
	etcdlock.HandToNobody(m)
	requireNothingLeft(t, client)
}

// The goroutine with the turn need not unlock before that.
func TestTheEndOfTheSessionReachesAllLocalWaiters(t *testing.T) {
	t.Parallel()
	for name, owns := range map[string]bool{"it is lost, with the lock": true, "it is closed, without": false} {
		t.Run(name, func(t *testing.T) {
			withLocal(t, func(t *testing.T, l *local) {
				s := current(t, l.keeper)
				m := etcdlock.NewMutex(s, "orders", handedOn)
				h := lock(t, map[bool]*etcdlock.Mutex{true: m, false: l.other}[owns])
				waiting := lineUp(t, within(t), m, 3)
				want := etcdlock.ErrLost
				if owns {
					lose(t, l.client, s)
				} else {
					awaitTickets(t, l.client, 2)
					require.NoError(t, s.Close(within(t)))
					want = etcdlock.ErrClosed
				}
				for _, w := range waiting {
					require.ErrorIs(t, await(t, "the end of a wait", w).err, want)
				}
				if owns {
					requireLost(t, h)
				} else {
					unlock(t, h)
				}
			})
		})
	}
}

func TestARemovedPlaceInEtcdsLineIsALossOfTheWaiterThereAlone(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := lock(t, l.other)
		waiting := lineUp(t, within(t), l.m, 3)
		awaitTickets(t, l.client, 2)
		remove(t, l.client, inspect(t, l.client, "orders").Places[1].Key)
		require.ErrorIs(t, await(t, "the end of a wait", waiting[0]).err, etcdlock.ErrLost)
		awaitTickets(t, l.client, 2)
		requireWaiting(t, waiting[1:]...)
		unlock(t, h)
		for _, w := range waiting[1:] {
			unlock(t, granted(t, w))
		}
	}, handedOn)
}

func TestIfOnlyTheKeyIsLostTheTurnIsPassedOnOnceAndLocalWaitersStandInLineAgain(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := lock(t, l.m)
		waiting := lineUp(t, within(t), l.m, 3)
		remove(t, l.client, h.Key())
		await(t, "the holder's loss", h.Done())
		require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
		next := granted(t, waiting[0])
		require.Greater(t, next.Token(), h.Token())
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		require.Equal(t, 1, tickets(t, l.client))
		for _, w := range waiting[1:] {
			requireWaiting(t, w)
			unlock(t, next)
			last := granted(t, w)
			require.Equal(t, next.Token(), last.Token())
			next = last
		}
		unlock(t, next)
		require.Eventually(t, func() bool {
			again := lock(t, l.m)
			unlock(t, again)
			return again.Key() == h.Key() // the name is free again
		}, patience, waitABit)
	}, handedOn)
}

func TestTryLockOfALocalLine(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := tryLock(t, l.m)
		before := l.cluster.Calls("Range")
		requireBusy(t, l.m)
		require.Equal(t, before, l.cluster.Calls("Range"), "it knows by itself")
		waiting := lineUp(t, within(t), l.m, 1)
		unlock(t, h)
		unlock(t, granted(t, waiting[0]))
		theirs := lock(t, l.other)
		requireBusy(t, l.m)
		unlock(t, theirs)
	}, handedOn)
}

// Each without a deadline has 10 s, as without a line.
func TestWithoutASessionCallersOfALocalLineGiveUpAtTheSameTime(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		silence := l.cluster.LoseRequest("LeaseGrant")
		start := time.Now()
		var returned []<-chan time.Time
		for range 3 {
			returned = append(returned, stopwatch(func() {
				_, err := l.m.Lock(context.Background())
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}))
		}
		for _, r := range returned {
			require.Equal(t, 10*time.Second, (<-r).Sub(start))
		}
		silence.Heal()
		unlock(t, lock(t, l.m))
	}, handedOn)
}
