package etcdlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// told is what a hook was told.
type told struct {
	etcdlock.Event
	what              string
	err               error
	queued, afterLost bool
}

func (c told) String() string {
	what := c.what
	if c.Key == "" || c.Token == 0 {
		what = "incomplete " + what
	}
	if c.err != nil {
		what += " with an error"
	}
	return what + " " + c.Name
}

// journal has the calls of hooks.
type journal struct{ calls chan told }

func newJournal() *journal { return &journal{make(chan told, 100)} }

func (j *journal) hooks() *etcdlock.Hooks {
	return &etcdlock.Hooks{
		Waiting:  func(w etcdlock.Waiting) { j.calls <- told{w.Event, "waiting", nil, true, false} },
		Acquired: func(a etcdlock.Acquired) { j.calls <- told{a.Event, "acquired", nil, a.Queued, false} },
		Failed:   func(f etcdlock.Failed) { j.calls <- told{f.Event, "failed", f.Err, f.Queued, false} },
		Released: func(r etcdlock.Released) { j.calls <- told{r.Event, "released", r.Err, false, r.AfterLost} },
		Lost:     func(l etcdlock.Lost) { j.calls <- told{l.Event, "lost", l.Err, false, true} },
	}
}

// call waits for the next call, and requires which it is.
func (j *journal) call(t *testing.T, want string) told {
	t.Helper()
	c := await(t, "a hook", j.calls)
	require.Equal(t, want, c.String())
	return c
}

type traceKey struct{}

// What a waiter is told of the token is true of the hold.
func TestHooksFireInTurnWithTheContextOfLockAndNoOthersDo(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	j := newJournal()
	with := etcdlock.WithHooks(j.hooks())
	for _, c := range []struct {
		kind, name string
		lock       etcdlock.Locker
	}{
		{"mutex", "a", etcdlock.NewMutex(s, "a", with)},
		{"write", "b", etcdlock.NewRWMutex(s, "b", with, etcdlock.WithHooks(nil), etcdlock.WithHooks(&etcdlock.Hooks{}))},
		{"read", "c", etcdlock.NewRWMutex(s, "c", with).RLocker()},
		{"permit", "d", etcdlock.NewSemaphore(s, "d", 1, with, etcdlock.WithSlots())},
		{"mutex", "e/0", etcdlock.NewStriped(s, "e", 1, with).For("apple")},
		{"multi", "f", anyN(etcdlock.NewStriped(s, "f", 1, with), 1)},
		{"multi", "g+h", allOf(s, "g", "h").With(with)},
		{"mutex", "i", outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "i", with))}},
		{"permit", "j", etcdlock.NewSemaphore(s, "j", 1, with)},
		{"election", "k", candidate{etcdlock.NewElection(s, "k", with)}},
		{"mutex", "l", etcdlock.NewMutex(s, "l", with, handedOn)},
	} {
		l, name := c.lock, c.name
		h, err := l.Lock(context.WithValue(within(t), traceKey{}, "span"))
		require.NoError(t, err)
		acquired := j.call(t, "acquired "+name)
		require.Equal(t, c.kind, acquired.Kind)
		require.Equal(t, "span", acquired.Context.Value(traceKey{}))
		require.False(t, acquired.queued)
		want := "waiting " + name
		switch name {
		case "c":
			unlock(t, tryLock(t, l))
			j.call(t, "acquired c")
			j.call(t, "released c")
			continue
		case "d", "l": // the token is that of the slot, or of what is handed on
			want = "incomplete " + want
		}
		if name != "k" {
			requireBusy(t, l)
			refused := j.call(t, "incomplete failed with an error "+name)
			require.ErrorIs(t, refused.err, etcdlock.ErrBusy)
			require.False(t, refused.queued)
		}
		ctx, cancel := context.WithCancel(within(t))
		waiting := locking(ctx, l)
		j.call(t, want)
		cancel()
		require.ErrorIs(t, await(t, "the waiter", waiting).err, context.Canceled)
		failure := j.call(t, strings.Replace(want, "waiting", "failed with an error", 1))
		require.ErrorIs(t, failure.err, context.Canceled)
		require.True(t, failure.queued)

		waiting = locking(within(t), l)
		token := j.call(t, want).Token
		unlock(t, h)
		next := granted(t, waiting)
		one, two := await(t, "a hook", j.calls), await(t, "a hook", j.calls)
		require.ElementsMatch(t, []string{"released " + name, "acquired " + name}, []string{one.String(), two.String()})
		require.Contains(t, []etcdlock.Token{0, next.Token()}, token, name)
		require.NoError(t, h.Unlock(within(t)))
		unlock(t, next)
		released := j.call(t, "released "+name)
		require.Equal(t, c.kind, released.Kind)
		if one.what == "acquired" {
			one, two = two, one
		}
		require.Equal(t, "span", one.Context.Value(traceKey{}), "that of the Lock")
		require.False(t, one.afterLost)
		require.True(t, two.queued)
	}
	require.Empty(t, j.calls)
}

func TestHooksTellOfALossOnceWhoeverNoticesIt(t *testing.T) {
	cluster, client := newCluster(t)
	j := newJournal()
	s := newSession(t, cluster.Client(t))
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithHooks(j.hooks()))
	acquire := func() *etcdlock.Hold {
		h := lock(t, m)
		j.call(t, "acquired orders")
		return h
	}
	requireTold := func(h *etcdlock.Hold) {
		t.Helper()
		require.ErrorIs(t, j.call(t, "lost with an error orders").err, etcdlock.ErrLost)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		require.True(t, j.call(t, "released with an error orders").afterLost)
	}
	h := acquire()
	remove(t, client, h.Key())
	require.ErrorIs(t, commit(within(t), h), etcdlock.ErrLost)
	requireTold(h)

	h = acquire()
	remove(t, client, h.Key())
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	unnoticed := j.call(t, "released with an error orders")
	require.ErrorIs(t, unnoticed.err, etcdlock.ErrLost)
	require.False(t, unnoticed.afterLost, "only the release noticed it")

	h = acquire()
	lose(t, client, s)
	requireTold(h)
	require.Empty(t, j.calls)
}

// It is one hold, however often it is entered.
func TestAReentrantLockTellsOfEachHoldOnce(t *testing.T) {
	cluster, client := newCluster(t)
	j := newJournal()
	r := etcdlock.Reentrant(newMutex(t, cluster, etcdlock.WithHooks(j.hooks())))
	ctx, outer := enter(within(t), t, r)
	j.call(t, "acquired orders")
	_, inner := enter(ctx, t, r)
	unlock(t, inner)
	require.Empty(t, j.calls)
	unlock(t, outer)
	j.call(t, "released orders")

	ctx, outer = enter(within(t), t, r)
	j.call(t, "acquired orders")
	_, inner = enter(ctx, t, r)
	remove(t, client, outer.Key())
	require.ErrorIs(t, commit(within(t), inner), etcdlock.ErrLost)
	j.call(t, "lost with an error orders")
	require.ErrorIs(t, inner.Unlock(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	j.call(t, "released with an error orders")
	require.Empty(t, j.calls)
}

// lines delivers what is written to it.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestTheLoggerIsToldOfEverythingAtItsLevel(t *testing.T) {
	cluster, client := newCluster(t)
	log := make(lines, 100)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := newMutex(t, cluster, etcdlock.WithLogger(logger), etcdlock.WithLogger(nil))
	first := lock(t, m)
	waiting := queued(t, client, m, 1)
	unlock(t, first)
	second := granted(t, waiting)
	remove(t, client, second.Key())
	require.ErrorIs(t, commit(within(t), second), etcdlock.ErrLost)
	var written []string
	for range 5 {
		written = append(written, await(t, "a line", log))
	}
	require.ErrorIs(t, second.Unlock(within(t)), etcdlock.ErrLost)
	all := strings.Join(append(written, await(t, "a line", log)), "")
	for _, want := range []struct {
		level, message string
		hold           *etcdlock.Hold
	}{
		{"DEBUG", "lock acquired", first}, {"DEBUG", "lock released", first}, {"DEBUG", "waiting for lock", second},
		{"DEBUG", "lock acquired", second}, {"WARN", "lock lost", second}, {"WARN", "lock not released cleanly", second},
	} {
		start := fmt.Sprintf("level=%s msg=%q lock=orders token=%d key=%s", want.level, want.message, want.hold.Token(), want.hold.Key())
		require.Equal(t, 1, strings.Count(all, start), "%s in %s", start, all)
	}
	require.Empty(t, log)
}
