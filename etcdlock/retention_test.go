package etcdlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// kept is without a time after which it would be given back.
var kept = etcdlock.WithRetention(noBound)

// aRoundTrip is what a request takes outside of virtual time. An ownership that is used without such a pause is trusted
// without a question. When it is over, whatever was under way has ended.
func aRoundTrip() { time.Sleep(time.Millisecond) }

// keep locks and unlocks the mutex, which keeps it, and listens for others by then.
func (l *local) keep(t *testing.T) *etcdlock.Hold {
	t.Helper()
	h := lock(t, l.m)
	unlock(t, h)
	require.True(t, etcdlock.OwnsLocally(l.m))
	aRoundTrip()
	return h
}

// giveBack has another process want the lock, so that it is kept no longer.
func (l *local) giveBack(t *testing.T) {
	t.Helper()
	unlock(t, lock(t, l.other))
}

func TestALockThatIsKeptIsLockedAgainWithoutAWrite(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := l.keep(t)
		token := h.Token()
		entries := l.cluster.AppliedIndex()
		for range 100 {
			h = lock(t, l.m)
			require.Equal(t, token, h.Token())
			requireBusy(t, l.m)
			unlock(t, h)
			require.NoError(t, h.Unlock(within(t)), "twice")
			require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
		}
		_, err := l.m.Lock(cancelled())
		require.ErrorIs(t, err, context.Canceled)
		h = tryLock(t, l.m)
		require.Equal(t, token, h.Token(), "a context that is over has not ended it")
		unlock(t, h)
		require.Equal(t, entries, l.cluster.AppliedIndex())
		l.giveBack(t)
	}, kept)
}

func TestALockThatIsKeptIsGivenUpWhenItIsWanted(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		for range 3 {
			h := l.keep(t)
			theirs := lock(t, l.other)
			require.Greater(t, theirs.Token(), h.Token())
			waiting := queued(t, l.client, l.m, 1)
			unlock(t, theirs)
			unlock(t, granted(t, waiting))
		}
		// Wanted while it is held, after it was kept or anew: it is not kept.
		for range 2 {
			h := lock(t, l.m)
			remote := queued(t, l.client, l.other, 1)
			requireWaiting(t, remote)
			aRoundTrip()
			unlock(t, h)
			require.False(t, etcdlock.OwnsLocally(l.m), "it was given back at once")
			unlock(t, granted(t, remote))
			awaitTickets(t, l.client, 0)
		}
	}, kept)
}

func TestALockThatIsKeptAndLostIsTakenAnew(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := l.keep(t)
		remove(t, l.client, h.Key())
		require.Eventually(t, func() bool { return !etcdlock.OwnsLocally(l.m) }, patience, waitABit)
		again := lock(t, l.m)
		require.Greater(t, again.Token(), h.Token())
		unlock(t, again)
		require.Eventually(t, func() bool {
			again := lock(t, l.m)
			remove(t, l.client, again.Key())
			aRoundTrip()
			require.ErrorIs(t, again.Unlock(within(t)), etcdlock.ErrLost)
			return again.Key() == h.Key()
		}, patience, waitABit, "the name is free again")
	}, kept)
}

func TestAKeptLockIsHandedOnInMemoryWhileNoOtherProcessWantsIt(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := lock(t, l.m)
		waiting := lineUp(t, within(t), l.m, 3)
		entries := l.cluster.AppliedIndex()
		unlock(t, h)
		next := granted(t, waiting[0])
		require.Equal(t, h.Token(), next.Token())
		require.Equal(t, entries, l.cluster.AppliedIndex())

		remote := queued(t, l.client, l.other, 1)
		unlock(t, next)
		theirs := granted(t, remote)
		requireWaiting(t, waiting[1:]...)
		unlock(t, theirs)
		for _, w := range waiting[1:] {
			h = granted(t, w)
			require.Greater(t, h.Token(), theirs.Token())
			unlock(t, h)
		}
		l.giveBack(t)
	}, kept)
}

func TestALockThatIsKeptHasOneListener(t *testing.T) {
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	m := newMutex(t, cluster, kept)
	unlock(t, lock(t, m))
	awaitTickets(t, client, 1) // and so that connections are there
	before := runtime.NumGoroutine()
	for range 200 {
		unlock(t, lock(t, m))
		require.Equal(t, 1, tickets(t, client)) // a round trip: timers have gone off
	}
	require.Less(t, runtime.NumGoroutine(), before+20)
}

func TestALocalLineGoesOnWithTheKeepersNextSession(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		l.keep(t)
		s := current(t, l.keeper)
		lose(t, l.client, s)
		h := lock(t, l.m)
		require.NoError(t, h.Err())
		require.NotEqual(t, s.Lease(), current(t, l.keeper).Lease())
		unlock(t, h)
		l.giveBack(t)
	}, handedOn, kept)
}

// gone removes the ticket of a hold by one of two ways, with which its holder may lock again.
func (l *local) gone(t *testing.T, byKey bool, h *etcdlock.Hold) {
	t.Helper()
	if byKey {
		force(t, l.client, h.Key(), h.Token())
	} else {
		revoke(t, l.client, current(t, l.keeper))
	}
	aRoundTrip()
}

// eachRemoval runs test with a mutex that has the options, and with what removes the ticket of a hold of it.
// No watch reports that before the silence is healed.
func eachRemoval(
	t *testing.T, test func(t *testing.T, l *local, gone func(*etcdlock.Hold), silence *embedtest.Fault), opts ...etcdlock.Option,
) {
	t.Helper()
	t.Parallel()
	for name, byKey := range map[string]bool{"the key is removed": true, "the lease is revoked": false} {
		t.Run(name, func(t *testing.T) {
			withLocal(t, func(t *testing.T, l *local) {
				test(t, l, func(h *etcdlock.Hold) { l.gone(t, byKey, h) }, l.cluster.SwallowWatchEvents())
			}, opts...)
		})
	}
}

// No grant rests on a ticket that was gone before the call began, whether it is the first hand-over of an
// ownership or a later one.
func TestAHandOverInMemoryIsOfATicketThatIsThere(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"the first": 0, "a later one": 1} {
		t.Run(name, func(t *testing.T) {
			eachRemoval(t, func(t *testing.T, l *local, gone func(*etcdlock.Hold), silence *embedtest.Fault) {
				h := lock(t, l.m)
				for _, w := range lineUp(t, within(t), l.m, before) {
					unlock(t, h)
					h = granted(t, w)
				}
				gone(h)
				theirs := lock(t, l.other)
				last := lineUp(t, within(t), l.m, 1)[0]
				require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
				requireWaiting(t, last)
				require.NoError(t, theirs.Err())
				silence.Heal()
				unlock(t, theirs)
				next := granted(t, last)
				require.Greater(t, next.Token(), theirs.Token())
				unlock(t, next)
			}, handedOn)
		})
	}
}

// The answer that grants the ticket may be older than the call of a goroutine that waits in memory.
func TestAGrantThatIsOlderThanTheCallIsOfATicketThatIsThere(t *testing.T) {
	cluster, client := newCluster(t)
	mine, link := cluster.Link(t)
	m := etcdlock.NewMutex(newSession(t, mine), "orders", handedOn)
	joining := cluster.Hold("Txn", embedtest.Once())
	ctx, cancel := context.WithCancel(within(t))
	first := lockingLocally(t, ctx, m)
	require.NoError(t, joining.Wait(within(t)))
	link.Blackhole()
	joining.Heal()
	awaitTickets(t, client, 1)
	remove(t, client, keysAt(t, client, "etcdlock/orders/")[0])
	theirs := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	later := lockingLocally(t, within(t), m)
	cancel()
	require.ErrorIs(t, await(t, "giving up", first).err, context.Canceled)
	link.Heal()
	awaitTickets(t, client, 2)
	requireWaiting(t, later)
	require.NoError(t, theirs.Err())
	unlock(t, theirs)
	unlock(t, granted(t, later))
}

func TestALockThatIsKeptIsTakenOnlyIfItIsThere(t *testing.T) {
	eachRemoval(t, func(t *testing.T, l *local, gone func(*etcdlock.Hold), silence *embedtest.Fault) {
		gone(l.keep(t))
		theirs := lock(t, l.other)
		waiting := locking(within(t), l.m)
		requireWaiting(t, waiting)
		require.NoError(t, theirs.Err())
		awaitTickets(t, l.client, 2)
		requireBusy(t, l.m)
		silence.Heal()
		unlock(t, theirs)
		unlock(t, granted(t, waiting))
		l.giveBack(t)
	}, kept)
}

// So does a mutex that gives its lock back later.
func TestUnlockOfALockThatWouldBeKeptTellsThatItIsGone(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]etcdlock.Option{"kept": kept, "a minimum": etcdlock.WithMinHold(aLongTime)} {
		t.Run(name, func(t *testing.T) {
			eachRemoval(t, func(t *testing.T, l *local, gone func(*etcdlock.Hold), silence *embedtest.Fault) {
				if name == "kept" {
					l.keep(t)
				}
				h := lock(t, l.m)
				gone(h)
				theirs := lock(t, l.other)
				if name == "kept" { // the question finds it, not the release: its reply is lost
					l.cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(deletes))
				}
				require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
				requireBusy(t, l.m)
				silence.Heal()
				require.NoError(t, theirs.Err())
				unlock(t, theirs)
			}, opt)
		})
	}
}

// No watch reports the other process.
func TestAKeptLockIsNotTakenAgainBeforeAnotherProcessThatWaits(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		silence := l.cluster.SwallowWatchEvents()
		l.keep(t)
		remote := queued(t, l.client, l.other, 1)
		waiting := locking(within(t), l.m)
		requireWaiting(t, waiting)
		silence.Heal()
		theirs := granted(t, remote)
		unlock(t, theirs)
		h := granted(t, waiting)
		require.Greater(t, h.Token(), theirs.Token())
		unlock(t, h)
		l.giveBack(t)
	}, kept)
}

// Others wait in memory meanwhile.
func TestALockThatIsKeptAndLostWhileItIsAskedForPassesItsTurnOnce(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := l.keep(t)
		question := l.cluster.Hold("Txn", embedtest.Once())
		first := locking(within(t), l.m)
		require.NoError(t, question.Wait(within(t)))
		second := locking(within(t), l.m)
		force(t, l.client, h.Key(), h.Token())
		require.Eventually(t, func() bool { return !etcdlock.OwnsLocally(l.m) }, patience, waitABit)
		question.Heal()
		next := granted(t, first)
		require.Greater(t, next.Token(), h.Token())
		require.Eventually(t, func() bool { return etcdlock.WaitingLocally(l.m) == 1 }, patience, waitABit)
		require.Equal(t, 1, tickets(t, l.client), "only the claim with the turn is in etcd's line")
		unlock(t, next)
		unlock(t, granted(t, second))
		l.giveBack(t)
	}, kept)
}

// The ticket of the process must not be in the way of its own call.
func TestTryLockTakesAKeptLockAnewIfEtcdDoesNotSayThatItIsThere(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := l.keep(t)
		question := l.cluster.Hold("Txn", embedtest.Once())
		again := tryLock(t, l.m)
		require.Greater(t, again.Token(), h.Token())
		question.Heal()
		require.NoError(t, again.Err())
		unlock(t, again)
		l.giveBack(t)
	}, kept)
}

// The time begins when the lock is unlocked, however long it was held.
func TestALockIsKeptForItsTimeAfterALongHold(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		h := lock(t, l.m)
		time.Sleep(time.Minute)
		unlock(t, h)
		time.Sleep(4 * time.Second)
		require.Equal(t, 1, tickets(t, l.client))
		time.Sleep(2 * time.Second)
		require.Zero(t, tickets(t, l.client))
	}, etcdlock.WithRetention(5*time.Second))
}
