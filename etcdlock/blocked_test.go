package etcdlock_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// expiring waits behind others with a deadline that is over when it is in line.
func expiring(t *testing.T, l etcdlock.Locker) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return await(t, "the time-out", locking(ctx, l)).err
}

func TestAWaitThatTimesOutSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	owner := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLabel("nightly run"))
	other := newSession(t, cluster.Client(t))
	h := lock(t, owner)
	waiting := locking(within(t), owner)
	awaitTickets(t, client, 2)
	for what, l := range map[string]etcdlock.Locker{
		"mutex": etcdlock.NewMutex(other, "orders"), "reader": etcdlock.NewRWMutex(other, "orders").RLocker(),
		"multi": allOf(other, "free", "orders"),
	} {
		err := expiring(t, l)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		var blocked *etcdlock.BlockedError
		require.ErrorAs(t, err, &blocked, what)
		require.Equal(t, os.Getpid(), blocked.Owner.PID)
		require.Equal(t, filepath.Base(os.Args[0]), blocked.Owner.Program)
		require.Equal(t, "nightly run", blocked.Owner.Label)
		require.Equal(t, h.Token(), blocked.Token)
		require.Equal(t, h.Key(), blocked.Key)
		require.Equal(t, 2, blocked.Ahead)
		require.ErrorContains(t, err, `2 ahead, owned by `)
		require.ErrorContains(t, err, `"nightly run" since `)
		awaitTickets(t, client, 2)
	}
	unlock(t, h)
	unlock(t, granted(t, waiting))
}

func TestAForeignOwnerIsShownByItsValue(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	_, err := client.Put(within(t), "etcdlock/orders/694d", "somebody else's")
	require.NoError(t, err)
	err = expiring(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	var blocked *etcdlock.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.Zero(t, blocked.Owner)
	require.Equal(t, "somebody else's", blocked.Value)
	require.Equal(t, "etcdlock/orders/694d", blocked.Key)
	require.ErrorContains(t, err, `owned by "somebody else's"`)
	awaitTickets(t, client, 1)
}

func TestACancelledWaitIsNotExplained(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	awaitTickets(t, cluster.Client(t), 2)
	before := cluster.Calls("Range")
	cancel()
	err := await(t, "the waiter", waiting).err
	require.ErrorIs(t, err, context.Canceled)
	var blocked *etcdlock.BlockedError
	require.NotErrorAs(t, err, &blocked)
	require.Equal(t, before, cluster.Calls("Range"))
	unlock(t, h)
}

// Scenario W7: there is nobody to ask.
func TestATimedOutWaitInABlackHoleReturnsAllTheSame(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	client, link := cluster.Link(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	waiting := locking(ctx, m)
	awaitTickets(t, cluster.Client(t), 2)
	link.Blackhole()
	err := await(t, "the time-out", waiting).err
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var blocked *etcdlock.BlockedError
	require.NotErrorAs(t, err, &blocked)
	unlock(t, h)
}
