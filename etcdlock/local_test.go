package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const noBound = time.Hour

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

func TestGoroutinesHandTheLockOnInOrderAndEtcdWritesNothing(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 1_000))
	h := lock(t, m)
	waiting := lineUp(t, within(t), m, 20)
	token, entries := h.Token(), cluster.AppliedIndex()
	for _, w := range waiting {
		requireWaiting(t, w)
		unlock(t, h)
		h = granted(t, w)
		require.Equal(t, token, h.Token(), "the token stays the same")
		require.NoError(t, h.Err())
	}
	require.Equal(t, entries, cluster.AppliedIndex())
	unlock(t, h)
	requireNothingLeft(t, client)
}

func TestAfterSoManyGrantsOthersHaveTheirTurn(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 3))
	h := lock(t, m)
	local := lineUp(t, within(t), m, 5)
	other := newMutex(t, cluster)
	remote := locking(within(t), other)
	awaitTickets(t, client, 2)
	first := h.Token()
	for range 2 { // with the first, three
		unlock(t, h)
		h, local = granted(t, local[0]), local[1:]
		require.Equal(t, first, h.Token())
	}
	requireWaiting(t, remote)
	unlock(t, h)
	theirs := granted(t, remote)
	require.Greater(t, theirs.Token(), first)
	for _, w := range local {
		requireWaiting(t, w)
	}
	unlock(t, theirs)
	for _, w := range local {
		h = granted(t, w)
		require.Greater(t, h.Token(), theirs.Token())
		unlock(t, h)
	}
	requireNothingLeft(t, client)
}

// The time is over as soon as it begins, so while another waits each ownership serves one.
func TestAfterItsTimeOthersHaveTheirTurn(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(1, 1_000))
	h := lock(t, m)
	first := h.Token()
	local := lineUp(t, within(t), m, 2)
	remote := locking(within(t), newMutex(t, cluster))
	awaitTickets(t, client, 2)
	unlock(t, h)
	theirs := granted(t, remote)
	require.Greater(t, theirs.Token(), first)
	requireWaiting(t, local[0])
	unlock(t, theirs)
	h = granted(t, local[0])
	require.Greater(t, h.Token(), theirs.Token())
	unlock(t, h)
	unlock(t, granted(t, local[1]))
	requireNothingLeft(t, client)
}

// The bound is for the sake of others.
func TestWhoIsAloneKeepsItsTicketBeyondTheBound(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]etcdlock.Option{
		"in time": etcdlock.WithLocalHandover(1, 1_000), "in number": etcdlock.WithLocalHandover(noBound, 1),
	} {
		t.Run(name, func(t *testing.T) {
			cluster, client := newCluster(t)
			m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders", option)
			h := lock(t, m)
			token, entries := h.Token(), cluster.AppliedIndex()
			for _, w := range lineUp(t, within(t), m, 5) {
				unlock(t, h)
				h = granted(t, w)
				require.Equal(t, token, h.Token())
			}
			require.Equal(t, entries, cluster.AppliedIndex())
			unlock(t, h)
			requireNothingLeft(t, client)
		})
	}
}

// The bound holds although etcd does not say whether there is anybody.
func TestWhoGetsNoAnswerGivesItsTicketBack(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(1, 1_000))
	h := lock(t, m)
	local := lineUp(t, within(t), m, 1)
	remote := locking(within(t), newMutex(t, cluster))
	awaitTickets(t, client, 2)
	held := cluster.Hold("Range", embedtest.Once()) // until the end
	unlock(t, h)
	require.NoError(t, held.Wait(within(t)))
	unlock(t, granted(t, remote))
	unlock(t, granted(t, local[0]))
	held.Heal()
	requireNothingLeft(t, client)
}

func TestWhoGivesUpInMemoryIsSkipped(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 1_000))
	h := lock(t, m)
	ctx, cancel := context.WithCancel(within(t))
	quits := lineUp(t, ctx, m, 2)
	stays := lineUp(t, within(t), m, 1)[0]
	cancel()
	for _, q := range quits {
		require.ErrorIs(t, await(t, "giving up", q).err, context.Canceled)
	}
	unlock(t, h)
	unlock(t, granted(t, stays))
	requireNothingLeft(t, client)
}

// Most give up at about the moment at which they are granted. entries is guarded by the lock alone.
func TestWhoGivesUpAtTheMomentOfTheGrantTroublesNobody(t *testing.T) {
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

func TestNobodyStandsInLineForNobody(t *testing.T) {
	_, client := newCluster(t)
	held := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLocalHandover(noBound, 1_000))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, m)
	awaitTickets(t, client, 2)
	cancel()
	require.ErrorIs(t, await(t, "giving up", waiting).err, context.Canceled)
	awaitTickets(t, client, 1)
	again := locking(within(t), m)
	awaitTickets(t, client, 2)
	unlock(t, held)
	unlock(t, granted(t, again))
}

func TestTheLossOfTheSessionReachesTheLocalHolderAndAllWhoWaitInMemory(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithLocalHandover(noBound, 1_000))
	h := lock(t, m)
	waiting := lineUp(t, within(t), m, 3)
	lose(t, client, s)
	await(t, "the holder's loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	for _, w := range waiting {
		require.ErrorIs(t, await(t, "a waiter's loss", w).err, etcdlock.ErrLost)
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestIfOnlyTheKeyIsLostWhoWaitsInMemoryStandsInLineAgain(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 1_000))
	h := lock(t, m)
	waiting := lineUp(t, within(t), m, 3)
	remove(t, client, h.Key())
	await(t, "the holder's loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	for _, w := range waiting {
		next := granted(t, w)
		require.Greater(t, next.Token(), h.Token())
		unlock(t, next)
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Eventually(t, func() bool {
		again := lock(t, m)
		unlock(t, again)
		return again.Key() == h.Key() // the name is free again
	}, patience, waitABit)
}

func TestTheRefusalOfEtcdReachesAllWhoWaitInMemory(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	held := lock(t, newMutex(t, cluster))
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithLocalHandover(noBound, 1_000))
	waiting := lineUp(t, within(t), m, 3)
	require.NoError(t, s.Close(within(t)))
	for _, w := range waiting {
		require.ErrorIs(t, await(t, "an error", w).err, etcdlock.ErrClosed)
	}
	unlock(t, held)
}

func TestTryLockOfALocalLine(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 10))
	h := tryLock(t, m)
	requests := cluster.Calls("Range")
	requireBusy(t, m)
	require.Equal(t, requests, cluster.Calls("Range"), "it knows by itself")
	waiting := lineUp(t, within(t), m, 1)
	unlock(t, h)
	unlock(t, granted(t, waiting[0]))
	other := lock(t, newMutex(t, cluster))
	requireBusy(t, m)
	unlock(t, other)
	requireNothingLeft(t, client)
}

func TestALockThatIsKeptIsLockedAgainWithoutAWrite(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithRetention(noBound))
	h := lock(t, m)
	token := h.Token()
	unlock(t, h)
	awaitTickets(t, client, 1)
	entries := cluster.AppliedIndex()
	for range 100 {
		h = lock(t, m)
		require.Equal(t, token, h.Token())
		requireBusy(t, m)
		unlock(t, h)
		require.NoError(t, h.Unlock(within(t)), "twice")
		require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
	}
	h = tryLock(t, m)
	unlock(t, h)
	require.Equal(t, entries, cluster.AppliedIndex())
}

func TestALockThatIsKeptStaysSoIfTheContextIsOver(t *testing.T) {
	cluster, _ := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithRetention(noBound))
	h := lock(t, m)
	unlock(t, h)
	_, err := m.Lock(cancelled())
	require.ErrorIs(t, err, context.Canceled)
	again := lock(t, m)
	require.Equal(t, h.Token(), again.Token())
	unlock(t, again)
}

func TestALockThatIsKeptGoesToWhoeverWantsIt(t *testing.T) {
	_, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithRetention(noBound))
	other := etcdlock.NewMutex(newSession(t, client), "orders")
	for range 3 {
		h := lock(t, m)
		unlock(t, h) // and is kept
		theirs := lock(t, other)
		require.Greater(t, theirs.Token(), h.Token())
		waiting := locking(within(t), m)
		awaitTickets(t, client, 2)
		unlock(t, theirs)
		unlock(t, granted(t, waiting))
	}
	// Wanted while it is held: it is not kept.
	h := lock(t, m)
	unlock(t, h)
	h = lock(t, m)
	remote := locking(within(t), other)
	awaitTickets(t, client, 2)
	requireWaiting(t, remote)
	unlock(t, h)
	unlock(t, granted(t, remote))
	awaitTickets(t, client, 0)
}

func TestALockIsNotKeptFromThoseWhoWaitAlready(t *testing.T) {
	_, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithRetention(noBound))
	h := lock(t, m)
	remote := locking(within(t), etcdlock.NewMutex(newSession(t, client), "orders"))
	awaitTickets(t, client, 2)
	unlock(t, h)
	require.False(t, etcdlock.OwnsLocally(m), "it was given back at once")
	unlock(t, granted(t, remote))
	awaitTickets(t, client, 0)
}

func TestALockIsKeptForItsTimeOnly(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithRetention(time.Millisecond))
	unlock(t, lock(t, m))
	awaitTickets(t, client, 0)
	unlock(t, lock(t, m))
	awaitTickets(t, client, 0)
}

func TestALockThatIsKeptAndLostIsTakenAnew(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithRetention(noBound))
	h := lock(t, m)
	unlock(t, h)
	remove(t, client, h.Key())
	require.Eventually(t, func() bool { return !etcdlock.OwnsLocally(m) }, patience, waitABit)
	again := lock(t, m)
	require.Greater(t, again.Token(), h.Token())
	unlock(t, again)
}

func TestLocalWaitersOfAKeptLockStandInEtcdsLine(t *testing.T) {
	_, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithRetention(noBound))
	h := lock(t, m)
	first := locking(within(t), m)
	awaitTickets(t, client, 2)
	remote := locking(within(t), etcdlock.NewMutex(newSession(t, client), "orders"))
	awaitTickets(t, client, 3)
	unlock(t, h)
	one := granted(t, first)
	requireWaiting(t, remote)
	unlock(t, one)
	unlock(t, granted(t, remote))
}

// Mutual exclusion and equal shares with several processes' worth of goroutines, of which some
// give up, some hand on and some keep.
func TestLocalLinesOfManySessionsExcludeEachOther(t *testing.T) {
	cluster, client := newCluster(t)
	options := [][]etcdlock.Option{
		nil,
		{etcdlock.WithLocalHandover(20*time.Millisecond, 50)},
		{etcdlock.WithRetention(time.Second)},
		{etcdlock.WithLocalHandover(noBound, 5), etcdlock.WithRetention(10 * time.Millisecond)},
	}
	var inside atomic.Int64
	var working sync.WaitGroup
	errs := make(chan error, 100)
	ctx := within(t)
	for i, opts := range options {
		m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders", opts...)
		for j := range 4 {
			working.Go(func() {
				for n := range 25 {
					wait, cancel := ctx, context.CancelFunc(func() {})
					if (i+j+n)%5 == 0 {
						wait, cancel = context.WithTimeout(ctx, 2*time.Millisecond)
					}
					h, err := m.Lock(wait)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
						continue
					}
					if err != nil {
						errs <- err
						return
					}
					if inside.Add(1) != 1 {
						errs <- fmt.Errorf("two at a time")
					}
					runtime.Gosched()
					inside.Add(-1)
					if err := h.Unlock(ctx); err != nil {
						errs <- err
						return
					}
				}
			})
		}
	}
	working.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	requireNothingLeft(t, client)
}

// clockOf returns a clock for a session, and what sets it forward, as if the machine had slept.
func clockOf() (now func() time.Duration, jump func(time.Duration)) {
	start := time.Now()
	var slept atomic.Int64
	return func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) },
		func(d time.Duration) { slept.Add(int64(d)) }
}

// Promise: Unlock after loss tells of it, even if nothing but the clock knows.
func TestUnlockTellsOfALossThatOnlyTheClockKnows(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]etcdlock.Option{
		"hand-over": etcdlock.WithLocalHandover(noBound, 10), "retention": etcdlock.WithRetention(noBound), "plain": etcdlock.WithLabel(""),
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := newCluster(t)
			now, jump := clockOf()
			m := etcdlock.NewMutex(newSession(t, cluster.Client(t), session.WithClock(now)), "orders", opt)
			h := lock(t, m)
			jump(noBound)
			require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		})
	}
}

func TestTheContextOfAHoldIsOverAtTheFirstLookIfTheHoldIs(t *testing.T) {
	cluster, _ := newCluster(t)
	now, jump := clockOf()
	asleep, closed := newSession(t, cluster.Client(t), session.WithClock(now)), newSession(t, cluster.Client(t))
	one, two := lock(t, etcdlock.NewMutex(asleep, "a")), lock(t, etcdlock.NewMutex(closed, "b"))
	jump(noBound)
	require.ErrorIs(t, context.Cause(one.Context()), etcdlock.ErrLost)
	require.NoError(t, closed.Close(within(t)))
	require.ErrorIs(t, context.Cause(two.Context()), etcdlock.ErrClosed)
}

// asking is a log whose reader asks back when something is lost.
type asking struct {
	slog.Handler
	ask func()
}

func (a asking) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelError }
func (a asking) Handle(context.Context, slog.Record) error        { a.ask(); return nil }
func (a asking) WithAttrs([]slog.Attr) slog.Handler               { return a }

// Only the clock knows of the loss, so it is the call that finds it out, in the midst of what it does.
func TestTheSessionsLogMayAskAHold(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*etcdlock.Mutex, *etcdlock.Hold){
		"context": func(_ *etcdlock.Mutex, h *etcdlock.Hold) { h.Context() },
		"unlock":  func(_ *etcdlock.Mutex, h *etcdlock.Hold) { _ = h.Unlock(context.Background()) },
		"lock":    func(m *etcdlock.Mutex, _ *etcdlock.Hold) { _, _ = m.Lock(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := newCluster(t)
			now, jump := clockOf()
			var h *etcdlock.Hold
			asked := 0
			log := slog.New(asking{slog.DiscardHandler, func() {
				asked++
				_, _ = h.Key(), h.Err()
			}})
			s := newSession(t, cluster.Client(t), session.WithClock(now), session.WithLogger(log))
			opt := etcdlock.WithLocalHandover(noBound, 10)
			if name == "lock" {
				opt = etcdlock.WithRetention(noBound)
			}
			m := etcdlock.NewMutex(s, "orders", opt)
			h = lock(t, m)
			if name == "lock" { // one that is kept
				unlock(t, h)
			}
			jump(noBound)
			looked := make(chan struct{})
			go func() {
				defer close(looked)
				look(m, h)
			}()
			await(t, "the call", looked)
			require.Equal(t, 1, asked)
		})
	}
}

func TestALockThatIsKeptHasOneListener(t *testing.T) {
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	m := newMutex(t, cluster, etcdlock.WithRetention(noBound))
	unlock(t, lock(t, m))
	awaitTickets(t, client, 1) // and so that connections are there
	before := runtime.NumGoroutine()
	for range 200 {
		unlock(t, lock(t, m))
		require.Equal(t, 1, tickets(t, client)) // a round trip: timers have gone off
	}
	require.Less(t, runtime.NumGoroutine(), before+20)
}

func TestIfThePlaceInEtcdsLineIsRemovedWhoWaitsInMemoryIsTold(t *testing.T) {
	_, client := newCluster(t)
	held := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLocalHandover(noBound, 10))
	waiting := lineUp(t, within(t), m, 3)
	awaitTickets(t, client, 2)
	queue, err := etcdlock.Inspect(within(t), client, "orders")
	require.NoError(t, err)
	_, err = client.Delete(within(t), queue.Places[1].Key)
	require.NoError(t, err)
	for _, w := range waiting {
		require.ErrorIs(t, await(t, "the loss", w).err, etcdlock.ErrLost)
	}
	unlock(t, held)
	unlock(t, lock(t, m))
	requireNothingLeft(t, client)
}

func TestALocalLineGoesOnWithTheKeepersNextSession(t *testing.T) {
	cluster, client := newCluster(t)
	sessions := keep(t, cluster.Client(t))
	m := etcdlock.NewMutex(sessions, "orders", etcdlock.WithLocalHandover(noBound, 10), etcdlock.WithRetention(noBound))
	unlock(t, lock(t, m))
	s := current(t, sessions)
	lose(t, client, s)
	h := lock(t, m)
	require.NoError(t, h.Err())
	next := current(t, sessions)
	require.NotEqual(t, s.Lease(), next.Lease())
	unlock(t, h)
}
