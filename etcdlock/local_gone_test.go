package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// removals are the ways in which a ticket goes by hand. Who had it may lock again.
var removals = map[string]func(*testing.T, *embedtest.Cluster, *session.Session, *etcdlock.Hold){
	"the key is removed": func(t *testing.T, c *embedtest.Cluster, _ *session.Session, h *etcdlock.Hold) {
		require.NoError(t, etcdlock.ForceRelease(within(t), c.Client(t), h.Key(), h.Token()))
	},
	"the lease is revoked": func(t *testing.T, c *embedtest.Cluster, s *session.Session, _ *etcdlock.Hold) {
		_, err := c.Client(t).Revoke(within(t), s.Lease())
		require.NoError(t, err)
	},
}

// removal is what eachRemoval gives to a test.
type removal struct {
	m, other *etcdlock.Mutex // of one name
	gone     func(*etcdlock.Hold)
	silence  *embedtest.Fault // of all watches
}

// eachRemoval runs test with a mutex that has the options, and with what removes the ticket of a hold of it.
// No watch reports that.
func eachRemoval(t *testing.T, test func(*testing.T, removal), opts ...etcdlock.Option) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			keeper := keep(t, cluster.Client(t), session.WithTTL(longTTL))
			s, err := keeper.Session(within(t))
			require.NoError(t, err)
			test(t, removal{
				m:       etcdlock.NewMutex(keeper, "orders", opts...),
				other:   etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"),
				gone:    func(h *etcdlock.Hold) { remove(t, cluster, s, h) },
				silence: cluster.SwallowWatchEvents(),
			})
		})
	}
}

// Promise 2: no grant rests on a ticket that was gone before the call began.
func TestAHandOverInMemoryIsOfATicketThatIsThere(t *testing.T) {
	t.Parallel()
	eachRemoval(t, func(t *testing.T, r removal) {
		h := lock(t, r.m)
		r.gone(h)
		theirs := lock(t, r.other)
		waiting := lineUp(t, within(t), r.m, 1)[0]
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		requireWaiting(t, waiting)
		require.NoError(t, theirs.Err())
		r.silence.Heal()
		unlock(t, theirs)
		require.Greater(t, await(t, "the next grant", waiting).hold.Token(), theirs.Token())
	}, etcdlock.WithLocalHandover(noBound, 1_000))
}

func TestALaterHandOverIsOfATicketThatIsThereToo(t *testing.T) {
	t.Parallel()
	eachRemoval(t, func(t *testing.T, r removal) {
		h := lock(t, r.m)
		waiting := lineUp(t, within(t), r.m, 2)
		unlock(t, h)
		h = granted(t, waiting[0])
		r.gone(h)
		theirs := lock(t, r.other)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		requireWaiting(t, waiting[1])
		r.silence.Heal()
		unlock(t, theirs)
		require.Greater(t, await(t, "the next grant", waiting[1]).hold.Token(), theirs.Token())
	}, etcdlock.WithLocalHandover(noBound, 1_000))
}

func TestALockThatIsKeptIsTakenOnlyIfItIsThere(t *testing.T) {
	t.Parallel()
	eachRemoval(t, func(t *testing.T, r removal) {
		h := lock(t, r.m)
		unlock(t, h) // and kept
		r.gone(h)
		theirs := lock(t, r.other)
		waiting := locking(within(t), r.m)
		requireWaiting(t, waiting)
		require.NoError(t, theirs.Err())
		requireBusy(t, r.m)
		r.silence.Heal()
		unlock(t, theirs)
		unlock(t, granted(t, waiting))
	}, etcdlock.WithRetention(noBound))
}

func TestUnlockOfALockThatWouldBeKeptTellsThatItIsGone(t *testing.T) {
	t.Parallel()
	eachRemoval(t, func(t *testing.T, r removal) {
		unlock(t, lock(t, r.m))
		h := lock(t, r.m)
		r.gone(h)
		theirs := lock(t, r.other)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		requireBusy(t, r.m)
		r.silence.Heal()
		unlock(t, theirs)
	}, etcdlock.WithRetention(noBound))
}

// A mutex that gives its lock back later has the same to tell.
func TestUnlockOfAMinimumTellsThatTheTicketIsGone(t *testing.T) {
	t.Parallel()
	eachRemoval(t, func(t *testing.T, r removal) {
		h := lock(t, r.m)
		r.gone(h)
		theirs := lock(t, r.other)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		requireBusy(t, r.m)
		require.NoError(t, theirs.Err())
		unlock(t, theirs)
	}, etcdlock.WithMinHold(aLongTime))
}
