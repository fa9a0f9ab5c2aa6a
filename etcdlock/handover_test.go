package etcdlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
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
	session  *session.Session // of m
	m, other *etcdlock.Mutex
}

// newLocal is for a test that runs beside others.
func newLocal(t *testing.T, opts ...etcdlock.Option) *local {
	t.Helper()
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	return &local{cluster, client, s, etcdlock.NewMutex(s, "orders", opts...), newMutex(t, cluster)}
}

// lineUp has n goroutines lock m one after the other, each known to wait before the next one comes.
func lineUp(t *testing.T, ctx context.Context, m *etcdlock.Mutex, n int) (waiting []<-chan result) {
	t.Helper()
	for range n {
		before := etcdlock.WaitingLocally(m)
		waiting = append(waiting, locking(ctx, m))
		require.Eventually(t, func() bool { return etcdlock.WaitingLocally(m) == before+1 }, patience, waitABit)
	}
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
			l := newLocal(t, option)
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
			requireNothingLeft(t, l.client)
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
			l := newLocal(t, c.option)
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
			requireNothingLeft(t, l.client)
		})
	}
}

// The bound holds although etcd does not say whether there is anybody.
func TestAnOwnerWithoutAnAnswerGivesItsTicketBack(t *testing.T) {
	l := newLocal(t, etcdlock.WithLocalHandover(1, 1_000))
	h := lock(t, l.m)
	waiting := lineUp(t, within(t), l.m, 1)
	remote := queued(t, l.client, l.other, 1)
	held := l.cluster.Hold("Txn", embedtest.Once()) // until the end
	unlock(t, h)
	require.NoError(t, held.Wait(within(t)))
	unlock(t, granted(t, remote))
	unlock(t, granted(t, waiting[0]))
	held.Heal()
	requireNothingLeft(t, l.client)
}

// Most give up at about the moment at which they are granted. entries is guarded by the lock alone.
func TestALocalWaiterThatGivesUpAtItsGrantHarmsNobody(t *testing.T) {
	l := newLocal(t, etcdlock.WithLocalHandover(noBound, 1_000_000))
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
				h, err := l.m.Lock(ctx)
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
	requireNothingLeft(t, l.client)
}

func TestALocalWaiterThatLeavesInItsTurnKeepsNothing(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	l := newLocal(t, handedOn, etcdlock.WithHooks(&etcdlock.Hooks{
		Waiting: func(etcdlock.Waiting) { entered <- struct{}{}; <-leave },
	}))
	for range 8 { // it may notice its turn or the end of its context first
		h := lock(t, l.m)
		ctx, cancel := context.WithCancel(within(t))
		waiting := locking(ctx, l.m)
		await(t, "the waiter", entered)
		unlock(t, h) // which hands it on
		cancel()
		leave <- struct{}{}
		require.ErrorIs(t, await(t, "giving up", waiting).err, context.Canceled)
		requireNothingLeft(t, l.client)
	}
	lock(t, l.m)
	etcdlock.HandToNobody(l.m)
	requireNothingLeft(t, l.client)
}

// The goroutine with the turn need not unlock before that.
func TestTheEndOfTheSessionReachesAllLocalWaiters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owns bool
		end  func(*testing.T, *local)
		want error
	}{
		"the session is lost, with the lock": {true, func(t *testing.T, l *local) { lose(t, l.client, l.session) }, etcdlock.ErrLost},
		"the session is closed":              {false, func(t *testing.T, l *local) { require.NoError(t, l.session.Close(within(t))) }, etcdlock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocal(t, handedOn)
			owner := l.other
			if c.owns {
				owner = l.m
			}
			h := lock(t, owner)
			waiting := lineUp(t, within(t), l.m, 3)
			if !c.owns {
				awaitTickets(t, l.client, 2)
			}
			c.end(t, l)
			for _, w := range waiting {
				require.ErrorIs(t, await(t, "the end of a wait", w).err, c.want)
			}
			if c.owns {
				requireLost(t, h)
			} else {
				unlock(t, h)
			}
			requireNothingLeft(t, l.client)
		})
	}
}

func TestARemovedPlaceInEtcdsLineIsALossOfTheWaiterThereAlone(t *testing.T) {
	l := newLocal(t, handedOn)
	h := lock(t, l.other)
	waiting := lineUp(t, within(t), l.m, 3)
	awaitTickets(t, l.client, 2)
	queue, err := etcdlock.Inspect(within(t), l.client, "orders")
	require.NoError(t, err)
	remove(t, l.client, queue.Places[1].Key)
	require.ErrorIs(t, await(t, "the end of a wait", waiting[0]).err, etcdlock.ErrLost)
	awaitTickets(t, l.client, 2)
	requireWaiting(t, waiting[1:]...)
	unlock(t, h)
	for _, w := range waiting[1:] {
		unlock(t, granted(t, w))
	}
	requireNothingLeft(t, l.client)
}

func TestIfOnlyTheKeyIsLostLocalWaitersStandInLineAgain(t *testing.T) {
	l := newLocal(t, handedOn)
	h := lock(t, l.m)
	waiting := lineUp(t, within(t), l.m, 3)
	remove(t, l.client, h.Key())
	await(t, "the holder's loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	for _, w := range waiting {
		next := granted(t, w)
		require.Greater(t, next.Token(), h.Token())
		unlock(t, next)
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Eventually(t, func() bool {
		again := lock(t, l.m)
		unlock(t, again)
		return again.Key() == h.Key() // the name is free again
	}, patience, waitABit)
}

func TestTryLockOfALocalLine(t *testing.T) {
	l := newLocal(t, handedOn)
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
	requireNothingLeft(t, l.client)
}

func TestTheUnlockAfterALossDoesNotPassTheTurnOnAgain(t *testing.T) {
	l := newLocal(t, handedOn)
	h := lock(t, l.m)
	waiting := lineUp(t, within(t), l.m, 2)
	remove(t, l.client, h.Key())
	next := granted(t, waiting[0])
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	requireWaiting(t, waiting[1])
	require.Equal(t, 1, tickets(t, l.client))
	unlock(t, next)
	last := granted(t, waiting[1])
	require.Equal(t, next.Token(), last.Token())
	unlock(t, last)
	requireNothingLeft(t, l.client)
}
