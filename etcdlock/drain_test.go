package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// draining starts to drain, and waits until newcomers are refused.
func draining(t *testing.T, k *session.Keeper) <-chan error {
	t.Helper()
	drained := background(func() error { return k.Drain(within(t)) })
	require.Eventually(t, func() bool {
		_, err := k.Session(within(t))
		return err != nil
	}, patience, waitABit)
	return drained
}

func TestDrainWaitsForTheLastHoldAndWaitOfEveryKind(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		keeper := keep(t, b.cluster.Client(t))
		blocker := lock(t, b.blocker())
		waiting := b.wait(within(t), t, b.open(keeper, "orders"), 1)
		drained := draining(t, keeper)
		_, err := b.open(keeper, "other").Lock(within(t))
		require.ErrorIs(t, err, session.ErrClosed)
		requireWaiting(t, waiting)
		unlock(t, blocker)
		h := granted(t, waiting)
		requireWaiting(t, drained)
		require.NoError(t, h.Err())
		unlock(t, h)
		require.NoError(t, await(t, "Drain", drained))
		leases, err := b.client.Leases(within(t))
		require.NoError(t, err)
		require.Len(t, leases.Leases, 1, "that of the blocker")
	})
}

func TestDrainRefusesWaitersInMemory(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]etcdlock.Option{"hand-over": handedOn, "retention": kept} {
		t.Run(name, func(t *testing.T) {
			withLocal(t, func(t *testing.T, l *local) {
				unlock(t, lock(t, l.m))
				h := lock(t, l.m)
				waiting := lineUp(t, within(t), l.m, 1)
				drained := draining(t, l.keeper)
				requireWaiting(t, drained)
				requireWaiting(t, waiting...)
				unlock(t, h)
				require.ErrorIs(t, await(t, "the waiter", waiting[0]).err, session.ErrClosed, "its own ticket would be new")
				require.NoError(t, await(t, "Drain", drained))
			}, option)
		})
	}
}

func TestDrainGivesUpALockThatIsKept(t *testing.T) {
	withLocal(t, func(t *testing.T, l *local) {
		l.keep(t)
		require.NoError(t, l.keeper.Drain(within(t)))
		require.Zero(t, tickets(t, l.client))
	}, kept)
}
