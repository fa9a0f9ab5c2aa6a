package etcdlock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// balance counts what hooks say, of locks all of whose waits and holds end.
type balance struct {
	mu    sync.Mutex
	waits int // that have begun, less those that have ended
	holds int
	calls int
}

func (b *balance) add(waits, holds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits += waits
	b.holds += holds
	b.calls++
}

func (b *balance) hooks() *etcdlock.Hooks {
	less := func(ended bool) int {
		if ended {
			return -1
		}
		return 0
	}
	return &etcdlock.Hooks{
		Waiting:  func(etcdlock.Waiting) { b.add(1, 0) },
		Acquired: func(a etcdlock.Acquired) { b.add(less(a.Queued), 1) },
		Failed:   func(f etcdlock.Failed) { b.add(less(f.Queued), 0) },
		Released: func(r etcdlock.Released) { b.add(0, less(!r.AfterLost)) },
		Lost:     func(etcdlock.Lost) { b.add(0, -1) },
	}
}

// requireEven requires that every wait and every hold has ended once. Lost is told in a moment.
func (b *balance) requireEven(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.waits == 0 && b.holds == 0
	}, patience, waitABit, "waits and holds that have not ended, or twice: %+v", b)
}

// seen keeps what hooks were told.
type seen struct {
	events   chan etcdlock.Event
	waiting  chan etcdlock.Waiting
	acquired chan etcdlock.Acquired
	failed   chan etcdlock.Failed
	released chan etcdlock.Released
}

func newSeen() (s seen, option etcdlock.Option) {
	s = seen{
		make(chan etcdlock.Event, 100), make(chan etcdlock.Waiting, 10), make(chan etcdlock.Acquired, 10),
		make(chan etcdlock.Failed, 10), make(chan etcdlock.Released, 10),
	}
	return s, etcdlock.WithHooks(&etcdlock.Hooks{
		Waiting:  func(w etcdlock.Waiting) { s.events <- w.Event; s.waiting <- w },
		Acquired: func(a etcdlock.Acquired) { s.events <- a.Event; s.acquired <- a },
		Failed:   func(f etcdlock.Failed) { s.events <- f.Event; s.failed <- f },
		Released: func(r etcdlock.Released) { s.events <- r.Event; s.released <- r },
		Lost:     func(l etcdlock.Lost) { s.events <- l.Event },
	})
}

type traceKey struct{}

func TestHooksAreToldTheContextOfLockAndTheKind(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	hooks, with := newSeen()
	ctx := context.WithValue(within(t), traceKey{}, "span")
	for _, c := range []struct {
		kind string
		lock etcdlock.Locker
	}{
		{"mutex", etcdlock.NewMutex(s, "a", with)},
		{"mutex", etcdlock.NewMutex(s, "b", with, handedOn)},
		{"mutex", etcdlock.NewStriped(s, "c", 1, with).For("apple")},
		{"mutex", outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "d", with))}},
		{"write", etcdlock.NewRWMutex(s, "e", with)},
		{"read", etcdlock.NewRWMutex(s, "f", with).RLocker()},
		{"permit", etcdlock.NewSemaphore(s, "g", 1, with)},
		{"multi", allOf(s, "h", "i").With(with)},
		{"multi", anyN(etcdlock.NewStriped(s, "j", 1, with), 1)},
		{"election", candidate{etcdlock.NewElection(s, "k", with)}},
	} {
		h, err := c.lock.Lock(ctx)
		require.NoError(t, err)
		unlock(t, h)
		for range 2 {
			event := await(t, "an event", hooks.events)
			require.Equal(t, c.kind, event.Kind)
			require.Equal(t, "span", event.Context.Value(traceKey{}))
			require.Equal(t, h.Name(), event.Name)
		}
	}
	require.Empty(t, hooks.events)
}

func TestHooksTellWhichCallsHadWaitedAndWhichHoldsWereLost(t *testing.T) {
	cluster, client := newCluster(t)
	hooks, with := newSeen()
	m := newMutex(t, cluster, with)
	h := lock(t, m)
	require.False(t, (<-hooks.acquired).Queued)
	requireBusy(t, m)
	refused := <-hooks.failed
	require.ErrorIs(t, refused.Err, etcdlock.ErrBusy)
	require.False(t, refused.Queued)
	require.Zero(t, refused.Token)

	ctx, cancel := context.WithCancel(within(t))
	next := queued(t, client, m, 1)
	gaveUp := locking(ctx, m)
	for range 2 { // until it is known that both are in line
		await(t, "a waiter", hooks.waiting)
	}
	cancel()
	require.ErrorIs(t, await(t, "giving up", gaveUp).err, context.Canceled)
	failure := <-hooks.failed
	require.ErrorIs(t, failure.Err, context.Canceled)
	require.True(t, failure.Queued)
	require.Greater(t, failure.Token, h.Token())

	unlock(t, h)
	require.False(t, (<-hooks.released).AfterLost)
	h = granted(t, next)
	require.True(t, (<-hooks.acquired).Queued)
	remove(t, client, h.Key())
	require.ErrorIs(t, commit(within(t), h), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.True(t, (<-hooks.released).AfterLost)

	h = lock(t, m)
	<-hooks.acquired
	remove(t, client, h.Key())
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	unnoticed := <-hooks.released
	require.ErrorIs(t, unnoticed.Err, etcdlock.ErrLost)
	require.False(t, unnoticed.AfterLost, "only the release noticed it")
}
