package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// lossNotice is what a Named was told.
type lossNotice struct {
	name string
	err  error
}

// named returns locks by name, and what they are told.
func named(src session.Source, opts ...etcdlock.Option) (*etcdlock.Named, <-chan lossNotice) {
	told := make(chan lossNotice, 10)
	return etcdlock.NewNamed(src, func(name string, err error) { told <- lossNotice{name, err} }, opts...), told
}

func TestLocksByNameExcludeEachOtherAndLocksOfThatName(t *testing.T) {
	cluster, client := newCluster(t)
	mine, told := named(newSession(t, cluster.Client(t)))
	theirs, _ := named(newSession(t, cluster.Client(t)))
	require.NoError(t, mine.Lock(within(t), "orders"))
	h, ok := mine.Hold("orders")
	require.True(t, ok)
	require.NoError(t, h.Err())
	requireBusy(t, newMutex(t, cluster))
	for _, n := range []*etcdlock.Named{mine, theirs} {
		taken, err := n.TryLock(within(t), "orders")
		require.NoError(t, err)
		require.False(t, taken)
		taken, err = n.TryLock(within(t), "stock")
		require.NoError(t, err)
		require.True(t, taken)
		require.NoError(t, n.Unlock(within(t), "stock"))
	}
	require.ErrorIs(t, theirs.Lock(cancelled(), "orders"), context.Canceled)
	require.ErrorIs(t, theirs.Unlock(within(t), "orders"), etcdlock.ErrNotHeld, "it is not theirs")
	require.NoError(t, mine.Unlock(within(t), "orders"))
	require.ErrorIs(t, mine.Unlock(within(t), "orders"), etcdlock.ErrNotHeld)
	_, ok = mine.Hold("orders")
	require.False(t, ok)
	require.NoError(t, theirs.Lock(within(t), "orders"))
	require.NoError(t, theirs.Unlock(within(t), "orders"))
	_, err := mine.TryLock(within(t), "")
	require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	require.Empty(t, told)
	requireNothingLeft(t, client)
}

func TestALossIsToldAndItsUnlockReturnsNothing(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	n, told := named(keeper)
	require.NoError(t, n.Lock(within(t), "orders"))
	old, _ := n.Hold("orders")
	lose(t, client, current(t, keeper))
	loss := await(t, "the loss", told)
	require.Equal(t, "orders", loss.name)
	require.ErrorIs(t, loss.err, etcdlock.ErrLost)

	require.NoError(t, n.Lock(within(t), "orders"))
	next, _ := n.Hold("orders")
	require.Greater(t, next.Token(), old.Token(), "the latest")
	require.NoError(t, n.Unlock(within(t), "orders"), "of the older one")
	require.NoError(t, next.Err())
	requireBusy(t, newMutex(t, cluster))

	remove(t, client, next.Key())
	require.NoError(t, n.Unlock(within(t), "orders"))
	loss = await(t, "the loss that the release has noticed", told)
	require.ErrorIs(t, loss.err, etcdlock.ErrLost)
	require.Empty(t, told)
}

func TestAnUnlockByNameThatIsNotConfirmedSaysSo(t *testing.T) {
	cluster, _ := newCluster(t)
	client, link := cluster.Link(t)
	n, told := named(newSession(t, client))
	require.NoError(t, n.Lock(within(t), "orders"))
	link.Blackhole()
	require.ErrorIs(t, n.Unlock(cancelled(), "orders"), context.Canceled)
	link.Heal()
	unlock(t, lock(t, newMutex(t, cluster)))
	require.Empty(t, told)
}

func TestTheContextOfANameEndsWithItsHold(t *testing.T) {
	cluster, _ := newCluster(t)
	n, _ := named(newSession(t, cluster.Client(t)))
	ctx, end := n.Context(t.Context(), "orders")
	defer end()
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrNotHeld)

	require.NoError(t, n.Lock(within(t), "orders"))
	ctx, end = n.Context(t.Context(), "orders")
	require.NoError(t, etcdlock.RequireHeld(ctx, "orders"))
	end()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	outer, cancel := context.WithCancel(t.Context())
	ctx, end = n.Context(outer, "orders")
	defer end()
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	ctx, end = n.Context(t.Context(), "orders")
	defer end()
	require.NoError(t, n.Unlock(within(t), "orders"))
	await(t, "the end of the hold", ctx.Done())
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnlocked)
}

func nothing(context.Context, *etcdlock.Hold) error { return nil }

func TestAJobRunsOnceAtATimeAndTellsOtherErrors(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	m := etcdlock.NewMutex(s, "orders")
	told := make(chan error, 10)
	runs := 0
	var result error
	job := etcdlock.Job(m, func(err error) { told <- err }, func(context.Context, *etcdlock.Hold) error {
		runs++
		return result
	})
	h := lock(t, m)
	job()
	require.Zero(t, runs)
	unlock(t, h)
	job()
	require.Equal(t, 1, runs)
	require.Empty(t, told)

	result = errors.New("the disk is full")
	job()
	require.ErrorIs(t, <-told, result)
	result = etcdlock.ErrBusy // of another lock
	job()
	require.ErrorIs(t, <-told, etcdlock.ErrBusy)
	require.NoError(t, s.Close(within(t)))
	job()
	require.ErrorIs(t, <-told, etcdlock.ErrClosed)
	require.Equal(t, 3, runs)
	require.Empty(t, told)
}
