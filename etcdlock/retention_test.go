package etcdlock_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// kept is without a time after which it would be given back.
var kept = etcdlock.WithRetention(noBound)

// keepLock locks and unlocks m until that keeps it: if etcd is too slow to confirm it, it is given back.
func keepLock(t *testing.T, m *etcdlock.Mutex) *etcdlock.Hold {
	t.Helper()
	for {
		h := lock(t, m)
		if unlock(t, h); etcdlock.OwnsLocally(m) {
			return h
		}
	}
}

func TestALockThatIsKeptIsLockedAgainWithoutAWrite(t *testing.T) {
	l := newLocal(t, kept)
	h := lock(t, l.m)
	token := h.Token()
	unlock(t, h)
	awaitTickets(t, l.client, 1)
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
}

func TestALockThatIsKeptIsGivenUpWhenItIsWanted(t *testing.T) {
	l := newLocal(t, kept)
	for range 3 {
		h := lock(t, l.m)
		unlock(t, h) // and is kept
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
		unlock(t, h)
		require.False(t, etcdlock.OwnsLocally(l.m), "it was given back at once")
		unlock(t, granted(t, remote))
		awaitTickets(t, l.client, 0)
	}
}

func TestALockThatIsKeptAndLostIsTakenAnew(t *testing.T) {
	l := newLocal(t, kept)
	h := keepLock(t, l.m)
	remove(t, l.client, h.Key())
	require.Eventually(t, func() bool { return !etcdlock.OwnsLocally(l.m) }, patience, waitABit)
	again := lock(t, l.m)
	require.Greater(t, again.Token(), h.Token())
	unlock(t, again)
	require.Eventually(t, func() bool {
		again := lock(t, l.m)
		remove(t, l.client, again.Key())
		require.ErrorIs(t, again.Unlock(within(t)), etcdlock.ErrLost)
		return again.Key() == h.Key()
	}, patience, waitABit, "the name is free again")
}

func TestAKeptLockIsHandedOnInMemoryWhileNoOtherProcessWantsIt(t *testing.T) {
	l := newLocal(t, kept)
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
	_, client := newCluster(t)
	sessions := keep(t, client)
	m := etcdlock.NewMutex(sessions, "orders", handedOn, kept)
	unlock(t, lock(t, m))
	s := current(t, sessions)
	lose(t, client, s)
	h := lock(t, m)
	require.NoError(t, h.Err())
	require.NotEqual(t, s.Lease(), current(t, sessions).Lease())
	unlock(t, h)
}

// removals are the ways in which a ticket goes by hand. Its holder may lock again.
var removals = map[string]func(*testing.T, *embedtest.Cluster, *session.Session, *etcdlock.Hold){
	"the key is removed": func(t *testing.T, c *embedtest.Cluster, _ *session.Session, h *etcdlock.Hold) {
		force(t, c.Client(t), h.Key(), h.Token())
	},
	"the lease is revoked": func(t *testing.T, c *embedtest.Cluster, s *session.Session, _ *etcdlock.Hold) {
		revoke(t, c.Client(t), s)
	},
}

// removal is what eachRemoval gives to a test.
type removal struct {
	cluster  *embedtest.Cluster
	m, other *etcdlock.Mutex // of one name
	gone     func(*etcdlock.Hold)
	silence  *embedtest.Fault // of all watches
}

// eachRemoval runs test with a mutex that has the options, and with what removes the ticket of a hold of it.
// No watch reports that.
func eachRemoval(t *testing.T, test func(*testing.T, removal), opts ...etcdlock.Option) {
	t.Parallel()
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			cluster, _ := newCluster(t)
			keeper := keep(t, cluster.Client(t))
			s := current(t, keeper)
			test(t, removal{
				cluster: cluster,
				m:       etcdlock.NewMutex(keeper, "orders", opts...),
				other:   newMutex(t, cluster),
				gone:    func(h *etcdlock.Hold) { remove(t, cluster, s, h) },
				silence: cluster.SwallowWatchEvents(),
			})
		})
	}
}

// No grant rests on a ticket that was gone before the call began, whether it is the first hand-over of an
// ownership or a later one.
func TestAHandOverInMemoryIsOfATicketThatIsThere(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"the first": 0, "a later one": 1} {
		t.Run(name, func(t *testing.T) {
			eachRemoval(t, func(t *testing.T, r removal) {
				h := lock(t, r.m)
				for _, w := range lineUp(t, within(t), r.m, before) {
					unlock(t, h)
					h = granted(t, w)
				}
				r.gone(h)
				theirs := lock(t, r.other)
				last := lineUp(t, within(t), r.m, 1)[0]
				require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
				requireWaiting(t, last)
				require.NoError(t, theirs.Err())
				r.silence.Heal()
				unlock(t, theirs)
				require.Greater(t, await(t, "the next grant", last).hold.Token(), theirs.Token())
			}, handedOn)
		})
	}
}

// The answer that grants the ticket may be older than the call of a goroutine that waits in memory.
func TestAGrantThatIsOlderThanTheCallIsOfATicketThatIsThere(t *testing.T) {
	cluster, client := newCluster(t)
	mine, link := cluster.Link(t)
	m := etcdlock.NewMutex(newSession(t, mine), "orders", etcdlock.WithLocalHandover(noBound, 1_000))
	joining := cluster.Hold("Txn", embedtest.Once())
	ctx, cancel := context.WithCancel(within(t))
	first := lineUp(t, ctx, m, 1)[0]
	require.NoError(t, joining.Wait(within(t)))
	link.Blackhole()
	joining.Heal()
	awaitTickets(t, client, 1)
	remove(t, client, keysAt(t, client, "etcdlock/orders/")[0])
	theirs := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	later := lineUp(t, within(t), m, 1)[0]
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
	eachRemoval(t, func(t *testing.T, r removal) {
		h := keepLock(t, r.m)
		r.gone(h)
		theirs := lock(t, r.other)
		waiting := locking(within(t), r.m)
		requireWaiting(t, waiting)
		require.NoError(t, theirs.Err())
		requireBusy(t, r.m)
		r.silence.Heal()
		unlock(t, theirs)
		unlock(t, granted(t, waiting))
	}, kept)
}

// So does a mutex that gives its lock back later.
func TestUnlockOfALockThatWouldBeKeptTellsThatItIsGone(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]etcdlock.Option{"kept": kept, "a minimum": etcdlock.WithMinHold(aLongTime)} {
		t.Run(name, func(t *testing.T) {
			eachRemoval(t, func(t *testing.T, r removal) {
				h := lock(t, r.m)
				if name == "kept" {
					unlock(t, h)
					h = lock(t, r.m)
				}
				r.gone(h)
				theirs := lock(t, r.other)
				if name == "kept" { // the question finds it, not the release: its reply is lost
					r.cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(deletes))
				}
				require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
				requireBusy(t, r.m)
				r.silence.Heal()
				require.NoError(t, theirs.Err())
				unlock(t, theirs)
			}, opt)
		})
	}
}

// No watch reports the other process.
func TestAKeptLockIsNotTakenAgainBeforeAnotherProcessThatWaits(t *testing.T) {
	l := newLocal(t, kept)
	silence := l.cluster.SwallowWatchEvents()
	keepLock(t, l.m)
	remote := queued(t, l.client, l.other, 1)
	waiting := locking(within(t), l.m)
	requireWaiting(t, waiting)
	silence.Heal()
	theirs := granted(t, remote)
	unlock(t, theirs)
	require.Greater(t, granted(t, waiting).Token(), theirs.Token())
}

// Others wait in memory meanwhile.
func TestALockThatIsKeptAndLostWhileItIsAskedForPassesItsTurnOnce(t *testing.T) {
	l := newLocal(t, kept)
	h := keepLock(t, l.m)
	awaitTickets(t, l.client, 1) // a pause, after which the ticket is asked for
	question := l.cluster.Hold("Txn", embedtest.Once())
	first := locking(within(t), l.m)
	require.NoError(t, question.Wait(within(t)))
	second := locking(within(t), l.m)
	_ = etcdlock.ForceRelease(within(t), l.client, h.Key(), h.Token()) // unless it comes too late
	require.Eventually(t, func() bool { return !etcdlock.OwnsLocally(l.m) }, patience, waitABit)
	question.Heal()
	next := granted(t, first)
	require.Greater(t, next.Token(), h.Token())
	require.Eventually(t, func() bool { return etcdlock.WaitingLocally(l.m) == 1 }, patience, waitABit)
	require.Equal(t, 1, tickets(t, l.client), "only the claim with the turn is in etcd's line")
	unlock(t, next)
	unlock(t, granted(t, second))
}

// The ticket of the process must not be in the way of its own call.
func TestTryLockTakesAKeptLockAnewIfEtcdDoesNotSayThatItIsThere(t *testing.T) {
	l := newLocal(t, kept)
	h := keepLock(t, l.m)
	awaitTickets(t, l.client, 1) // a pause, after which the ticket is asked for
	question := l.cluster.Hold("Txn", embedtest.Once())
	again := tryLock(t, l.m)
	require.Greater(t, again.Token(), h.Token())
	question.Heal()
	require.NoError(t, again.Err())
	unlock(t, again)
}
