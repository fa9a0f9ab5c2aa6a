package etcdlock_test

import (
	"context"
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
