package etcdlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// journal writes down which hooks are called.
type journal struct{ calls chan string }

func newJournal() *journal { return &journal{make(chan string, 100)} }

func (j *journal) hooks() *etcdlock.Hooks {
	note := func(what, name, key string, token etcdlock.Token, err error) {
		if key == "" || token == 0 {
			what = "incomplete " + what
		}
		if err != nil {
			what += " with an error"
		}
		j.calls <- what + " " + name
	}
	return &etcdlock.Hooks{
		Waiting:  func(w etcdlock.Waiting) { note("waiting", w.Name, w.Key, w.Token, nil) },
		Acquired: func(a etcdlock.Acquired) { note("acquired", a.Name, a.Key, a.Token, nil) },
		Released: func(r etcdlock.Released) { note("released", r.Name, r.Key, r.Token, r.Err) },
		Lost:     func(l etcdlock.Lost) { note("lost", l.Name, l.Key, l.Token, l.Err) },
	}
}

func (j *journal) next(t *testing.T) string { return await(t, "a hook", j.calls) }

func TestHooksFireInTurnAndNoOthersDo(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	j := newJournal()
	with := etcdlock.WithHooks(j.hooks())
	for name, l := range map[string]etcdlock.Locker{
		"a":   etcdlock.NewMutex(s, "a", with),
		"b":   etcdlock.NewRWMutex(s, "b", with, etcdlock.WithHooks(nil), etcdlock.WithHooks(&etcdlock.Hooks{})),
		"c":   etcdlock.NewRWMutex(s, "c", with).RLocker(),
		"d":   etcdlock.NewSemaphore(s, "d", 1, with, etcdlock.WithSlots()),
		"e/0": etcdlock.NewStriped(s, "e", 1, with).For("apple"),
		"f":   anyN(etcdlock.NewStriped(s, "f", 1, with), 1),
		"g+h": allOf(s, "g", "h").With(with),
		"i":   outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "i", with))},
	} {
		h := lock(t, l)
		require.Equal(t, "acquired "+name, j.next(t))
		_, err := l.TryLock(within(t))
		if name == "c" {
			require.NoError(t, err)
			require.Equal(t, "acquired c", j.next(t))
			continue
		}
		require.ErrorIs(t, err, etcdlock.ErrBusy)
		ctx, cancel := context.WithCancel(within(t))
		waiting := locking(ctx, l)
		want := "waiting " + name
		if name == "d" { // the token is that of the slot
			want = "incomplete " + want
		}
		require.Equal(t, want, j.next(t))
		cancel()
		require.ErrorIs(t, await(t, "the waiter", waiting).err, context.Canceled)
		unlock(t, h)
		require.NoError(t, h.Unlock(within(t)))
		require.Equal(t, "released "+name, j.next(t))
	}
	require.Empty(t, j.calls)
}

// What a waiter is told of the token is true of the hold.
func TestTheTokenOfWaitingIsThatOfTheHoldOrUnknown(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	waits := make(chan etcdlock.Waiting, 1)
	with := etcdlock.WithHooks(&etcdlock.Hooks{Waiting: func(w etcdlock.Waiting) { waits <- w }})
	for name, l := range map[string]etcdlock.Locker{
		"a mutex":             etcdlock.NewMutex(s, "a", with),
		"a permit":            etcdlock.NewSemaphore(s, "b", 1, with),
		"a permit and a slot": etcdlock.NewSemaphore(s, "c", 1, with, etcdlock.WithSlots()),
		"several":             allOf(s, "d", "e").With(with),
		"any":                 anyN(etcdlock.NewStriped(s, "f", 2, with), 2),
	} {
		h := lock(t, l)
		waiting := locking(within(t), l)
		w := await(t, "the hook", waits)
		unlock(t, h)
		h = granted(t, waiting)
		if name == "a permit and a slot" {
			require.Zero(t, w.Token, name)
		} else {
			require.Equal(t, h.Token(), w.Token, name)
		}
		unlock(t, h)
	}
}

func TestALossIsToldOnceAndTheReleaseAfterItToo(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	j := newJournal()
	h := lock(t, etcdlock.NewMutex(s, "orders", etcdlock.WithHooks(j.hooks())))
	require.Equal(t, "acquired orders", j.next(t))
	lose(t, client, s)
	require.Equal(t, "lost with an error orders", j.next(t))
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.Equal(t, "released with an error orders", j.next(t))
	require.Empty(t, j.calls)
}

// Scenario F2: it is one hold, however often it is entered.
func TestAReentrantLockTellsOfEachHoldOnce(t *testing.T) {
	cluster, client := newCluster(t)
	j := newJournal()
	r := etcdlock.Reentrant(newMutex(t, cluster, etcdlock.WithHooks(j.hooks())))
	ctx, outer := enter(within(t), t, r)
	require.Equal(t, "acquired orders", j.next(t))
	_, inner := enter(ctx, t, r)
	unlock(t, inner)
	require.Empty(t, j.calls)
	unlock(t, outer)
	require.Equal(t, "released orders", j.next(t))

	ctx, outer = enter(within(t), t, r)
	require.Equal(t, "acquired orders", j.next(t))
	_, inner = enter(ctx, t, r)
	remove(t, client, outer.Key())
	_, err := inner.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.Equal(t, "lost with an error orders", j.next(t))
	require.ErrorIs(t, inner.Unlock(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	require.Equal(t, "released with an error orders", j.next(t))
	require.Empty(t, j.calls)
}

// pages is a buffer for several goroutines.
type pages struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buffer.Write(b)
}

func (p *pages) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSpace(p.buffer.String()), "\n")
}

func TestTheLoggerIsToldOfEverythingAtItsLevel(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	var log pages
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithLogger(logger), etcdlock.WithLogger(nil))
	first := lock(t, m)
	waiting := locking(within(t), m)
	awaitTickets(t, client, 2)
	unlock(t, first)
	second := granted(t, waiting)
	remove(t, client, second.Key())
	_, err := second.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(log.lines(), "\n"), "lock lost") }, patience, waitABit)
	require.ErrorIs(t, second.Unlock(within(t)), etcdlock.ErrLost)

	lines := log.lines()
	for _, want := range []struct {
		level, message string
		hold           *etcdlock.Hold
	}{
		{"DEBUG", "lock acquired", first}, {"DEBUG", "lock released", first}, {"DEBUG", "waiting for lock", second},
		{"DEBUG", "lock acquired", second}, {"WARN", "lock lost", second}, {"WARN", "lock not released cleanly", second},
	} {
		start := fmt.Sprintf("level=%s msg=%q lock=orders token=%d key=%s", want.level, want.message, want.hold.Token(), want.hold.Key())
		found := 0
		for _, line := range lines {
			if strings.Contains(line, start) {
				found++
			}
		}
		require.Equal(t, 1, found, "%s in %v", start, lines)
	}
	require.Len(t, lines, 6)
}
