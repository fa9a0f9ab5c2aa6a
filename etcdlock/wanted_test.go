package etcdlock_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// exclusives are the kinds whose holders can ask whether others wait.
var exclusives = []string{"Mutex", "Mutex at a prefix", "RWMutex", "stripe", "candidate of Election"}

func TestAHolderLearnsThatAnotherWaits(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		h := lock(t, b.open(b.session, "orders"))
		defer unlock(t, h)
		if !slices.Contains(exclusives, b.title) {
			require.ErrorContains(t, h.Wanted(within(t)), "only the exclusive hold", b.title)
			return
		}
		ctx, cancel := context.WithCancel(within(t))
		wanted := background(func() error { return h.Wanted(within(t)) })
		requireWaiting(t, wanted)
		waiting := b.wait(ctx, t, b.orders(t), 1)
		require.NoError(t, await(t, "the news", wanted))
		require.NoError(t, h.Wanted(within(t)), "it is wanted already")
		cancel()
		require.ErrorIs(t, await(t, "giving up", waiting).err, context.Canceled)
	})
}

func TestWantedEndsWithItsContextOrTheHold(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	h := lock(t, m)
	require.ErrorIs(t, h.Wanted(cancelled()), context.Canceled)
	released := background(func() error { return h.Wanted(within(t)) })
	requireWaiting(t, released)
	unlock(t, h)
	require.ErrorIs(t, await(t, "the end", released), etcdlock.ErrUnlocked)

	h = lock(t, m)
	lost := background(func() error { return h.Wanted(within(t)) })
	requireWaiting(t, lost)
	remove(t, client, h.Key())
	require.ErrorIs(t, await(t, "the end", lost), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestASharedOrKeptHoldDoesNotKnowWhetherItIsWanted(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	downgraded := lock(t, etcdlock.NewRWMutex(s, "downgraded"))
	require.NoError(t, downgraded.Downgrade(within(t)))
	for _, h := range []*etcdlock.Hold{downgraded, lock(t, etcdlock.NewMutex(s, "kept", kept))} {
		require.ErrorContains(t, h.Wanted(within(t)), "only the exclusive hold")
	}
}
