package etcdlock_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

func TestRequireHeldKnowsWhatItsContextComesFrom(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	nested, err := etcdlock.NewRWMutex(s, "stock").RLock(h.Context())
	require.NoError(t, err)
	type key struct{}
	derived, cancel := context.WithCancel(context.WithValue(nested.Context(), key{}, 1))
	cancel()
	permit := lock(t, etcdlock.NewSemaphore(s, "pool", 2))
	entered, reentrant, err := etcdlock.Reentrant(etcdlock.NewMutex(s, "deep")).Lock(derived)
	if err == nil {
		unlock(t, reentrant)
	}
	require.ErrorIs(t, err, context.Canceled)
	require.Same(t, derived, entered)
	entered, reentrant = enter(nested.Context(), t, etcdlock.Reentrant(etcdlock.NewMutex(s, "deep")))

	for what, c := range map[string]struct {
		ctx  context.Context
		name string
		want error
	}{
		"its own":                 {h.Context(), "orders", nil},
		"another":                 {h.Context(), "stock", etcdlock.ErrNotHeld},
		"no hold":                 {within(t), "orders", etcdlock.ErrNotHeld},
		"the inner of two":        {nested.Context(), "stock", nil},
		"the outer of two":        {nested.Context(), "orders", nil},
		"derived and cancelled":   {derived, "orders", nil},
		"permits":                 {permit.Context(), "pool", nil},
		"entered":                 {entered, "deep", nil},
		"around what was entered": {entered, "orders", nil},
		"no name":                 {h.Context(), "", etcdlock.ErrNotHeld},
	} {
		err := etcdlock.RequireHeld(c.ctx, c.name)
		require.ErrorIs(t, err, c.want, what)
		if c.want != nil {
			require.ErrorContains(t, err, "require")
		}
	}
	require.NoError(t, etcdlock.Do(within(t), etcdlock.NewMutex(s, "job"), func(ctx context.Context, _ *etcdlock.Hold) error {
		require.ErrorIs(t, etcdlock.RequireHeld(ctx, "orders"), etcdlock.ErrNotHeld)
		return etcdlock.RequireHeld(ctx, "job")
	}))
	unlockAll(t, reentrant, permit, nested)
	require.ErrorIs(t, etcdlock.RequireHeld(nested.Context(), "stock"), etcdlock.ErrUnlocked)
	require.NoError(t, etcdlock.RequireHeld(nested.Context(), "orders"), "the outer one is still held")
	require.ErrorIs(t, etcdlock.RequireHeld(entered, "deep"), etcdlock.ErrUnlocked)

	again := lock(t, etcdlock.NewSemaphore(s, "pool", 2))
	both, err := etcdlock.NewSemaphore(s, "pool", 2).Lock(again.Context())
	require.NoError(t, err)
	unlock(t, both)
	require.NoError(t, etcdlock.RequireHeld(both.Context(), "pool"), "one of two is enough")
	unlock(t, again)

	lose(t, client, s)
	require.ErrorIs(t, etcdlock.RequireHeld(h.Context(), "orders"), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestATicketNamesTheHoldsUnderWhichItIsAskedFor(t *testing.T) {
	cluster, client := newCluster(t)
	mine, theirs := cluster.Client(t), cluster.Client(t)
	s := newSession(t, mine)
	a := lock(t, etcdlock.NewMutex(s, "a\nb"))
	two, err := etcdlock.NewMulti(s, etcdlock.NewMutex(s, "b"), etcdlock.NewMutex(s, "c")).Lock(a.Context())
	require.NoError(t, err)
	ended, err := etcdlock.NewMutex(s, "ended").Lock(two.Context())
	require.NoError(t, err)
	unlock(t, ended)

	inner := etcdlock.NewRWMutex(s, "inner")
	elsewhere := etcdlock.NewMutex(newSession(t, theirs), "elsewhere") // perhaps another etcd
	for _, l := range []etcdlock.Locker{inner, inner.RLocker(), etcdlock.NewSemaphore(s, "permits", 2), etcdlock.NewMulti(s, etcdlock.NewMutex(s, "d"), etcdlock.NewMutex(s, "e")), elsewhere} {
		h, err := l.Lock(context.WithoutCancel(ended.Context()))
		require.NoError(t, err)
		want := fmt.Sprintf("%d %s\n%d etcdlock/c/%s\n%d %s", two.Token(), two.Key(), two.Token(), path.Base(two.Key()), a.Token(), a.Key())
		if l == elsewhere {
			want = ""
		}
		q := inspect(t, client, strings.Split(h.Key(), "/")[1])
		require.Equal(t, want, q.Places[0].Owner.Within)
		require.False(t, q.Places[0].Owner.Choice)
		unlock(t, h)
	}

	all, _, err := etcdlock.NewStriped(s, "parts", 3).AnyN(within(t), 3)
	require.NoError(t, err)
	waiting, stop := context.WithCancel(a.Context())
	refused := make(chan error)
	go func() {
		_, _, err := etcdlock.NewStriped(s, "parts", 3).Any(waiting)
		refused <- err
	}()
	choices := 0
	require.Eventually(t, func() bool {
		for q, err := range etcdlock.InspectAll(within(t), client) {
			require.NoError(t, err)
			for _, p := range q.Places {
				require.Equal(t, !p.Holding, p.Owner.Choice)
				if p.Owner.Choice {
					require.Equal(t, fmt.Sprintf("%d %s", a.Token(), a.Key()), p.Owner.Within)
					choices++
				}
			}
		}
		return choices > 0
	}, patience, waitABit)
	require.Equal(t, 3, choices)
	stop()
	require.ErrorIs(t, <-refused, context.Canceled)
	unlockAll(t, all, two, a)
}
