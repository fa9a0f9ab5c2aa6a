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

// journal writes down which hooks are called.
type journal struct {
	calls  chan string
	tokens chan etcdlock.Token // of those that wait
}

func newJournal() *journal {
	return &journal{make(chan string, 100), make(chan etcdlock.Token, 100)}
}

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
		Waiting: func(w etcdlock.Waiting) {
			j.tokens <- w.Token
			note("waiting", w.Name, w.Key, w.Token, nil)
		},
		Acquired: func(a etcdlock.Acquired) { note("acquired", a.Name, a.Key, a.Token, nil) },
		Failed:   func(f etcdlock.Failed) { note("failed", f.Name, f.Key, f.Token, f.Err) },
		Released: func(r etcdlock.Released) { note("released", r.Name, r.Key, r.Token, r.Err) },
		Lost:     func(l etcdlock.Lost) { note("lost", l.Name, l.Key, l.Token, l.Err) },
	}
}

func (j *journal) next(t *testing.T) string { return await(t, "a hook", j.calls) }

// What a waiter is told of the token is true of the hold.
func TestHooksFireInTurnAndNoOthersDo(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
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
		"j":   etcdlock.NewSemaphore(s, "j", 1, with),
		"k":   candidate{etcdlock.NewElection(s, "k", with)},
	} {
		h := lock(t, l)
		require.Equal(t, "acquired "+name, j.next(t))
		if name == "c" {
			unlock(t, tryLock(t, l))
			require.Equal(t, "acquired c", j.next(t))
			require.Equal(t, "released c", j.next(t))
			continue
		}
		want := "waiting " + name
		if name == "d" { // the token is that of the slot
			want = "incomplete " + want
		}
		if name != "k" {
			requireBusy(t, l)
			require.Equal(t, "incomplete failed with an error "+name, j.next(t))
		}
		ctx, cancel := context.WithCancel(within(t))
		waiting := locking(ctx, l)
		require.Equal(t, want, j.next(t))
		<-j.tokens
		cancel()
		require.ErrorIs(t, await(t, "the waiter", waiting).err, context.Canceled)
		require.Equal(t, strings.Replace(want, "waiting", "failed with an error", 1), j.next(t))

		waiting = locking(within(t), l)
		require.Equal(t, want, j.next(t))
		unlock(t, h)
		next := granted(t, waiting)
		require.ElementsMatch(t, []string{"released " + name, "acquired " + name}, []string{j.next(t), j.next(t)})
		if token := <-j.tokens; name != "d" {
			require.Equal(t, next.Token(), token, name)
		}
		require.NoError(t, h.Unlock(within(t)))
		unlock(t, next)
		require.Equal(t, "released "+name, j.next(t))
	}
	require.Empty(t, j.calls)
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

// It is one hold, however often it is entered.
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
	require.ErrorIs(t, commit(within(t), inner), etcdlock.ErrLost)
	require.Equal(t, "lost with an error orders", j.next(t))
	require.ErrorIs(t, inner.Unlock(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	require.Equal(t, "released with an error orders", j.next(t))
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
