package etcdlock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestMoreNamesThanATransactionCarriesAreRefused(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	var names []string
	for i := range 129 {
		names = append(names, fmt.Sprint("n", i))
	}
	before := cluster.AppliedIndex()
	tooMany := allOf(s, names...)
	for _, call := range []func(context.Context) (*etcdlock.Hold, error){tooMany.Lock, tooMany.TryLock} {
		_, err := call(within(t))
		var typed *etcdlock.TooManyError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, etcdlock.TooManyError{Places: 129, Limit: 128}, *typed)
	}
	require.Equal(t, before, cluster.AppliedIndex())

	most := allOf(s, append(names[:128:128], "n0")...) // n0 counts once
	for _, call := range []func(context.Context) (*etcdlock.Hold, error){most.Lock, most.TryLock} {
		h, err := call(within(t))
		require.NoError(t, err)
		require.Equal(t, 128, tickets(t, cluster.Client(t)))
		unlock(t, h)
		require.Zero(t, tickets(t, cluster.Client(t)))
	}
	one := lock(t, etcdlock.NewMutex(s, "n77"))
	_, err := most.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	waiting := locking(within(t), most)
	awaitTickets(t, cluster.Client(t), 129)
	unlock(t, one)
	unlock(t, granted(t, waiting))
}

// While a Multi waits for one of its parts, those it has had already may be taken away.
func TestAMultiThatLostAPartWhileItWaitedIsNotGranted(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := newSession(t, cluster.Client(t))
	b := lock(t, etcdlock.NewMutex(newSession(t, client), "b"))
	waiting := locking(within(t), allOf(s, "a", "b"))
	awaitTickets(t, client, 3)
	for _, key := range keysAt(t, client, "etcdlock/a/") {
		_, err := client.Delete(within(t), key)
		require.NoError(t, err)
	}
	unlock(t, b)
	require.ErrorIs(t, await(t, "the waiter", waiting).err, etcdlock.ErrLost)
	awaitTickets(t, client, 0)
}

func TestAMultiNeedsLocksAndASource(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	require.PanicsWithValue(t, "etcdlock: a Multi of no locks", func() { etcdlock.NewMulti(s) })
	require.PanicsWithValue(t, "etcdlock: a Multi needs a session source", func() {
		etcdlock.NewMulti(nil, etcdlock.NewMutex(s, "a"))
	})
	_, err := allOf(s, "a", "", "b").Lock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	require.Zero(t, tickets(t, cluster.Client(t)))
}
