package etcdlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestNamesThatCannotBeAreRefusedWithoutAskingEtcd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	before := cluster.Calls("Txn") + cluster.Calls("Range")
	for what, m := range map[string]*etcdlock.Mutex{
		"empty":           etcdlock.NewMutex(s, ""),
		"empty prefix":    etcdlock.NewMutex(s, "", etcdlock.AtPrefix()),
		"too long":        etcdlock.NewMutex(s, strings.Repeat("x", 513)),
		"not UTF-8":       etcdlock.NewMutex(s, "a\xffb"),
		"empty namespace": etcdlock.NewMutex(s, "orders", etcdlock.WithNamespace("")),
	} {
		_, err := m.Lock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrInvalidName, what)
		_, err = m.TryLock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrInvalidName, what)
		var typed *etcdlock.Error
		require.ErrorAs(t, err, &typed, what)
		require.Equal(t, m.Name(), typed.Name)
	}
	require.Equal(t, before, cluster.Calls("Txn")+cluster.Calls("Range"))
}

// Scenario R5.
func TestUnusualNamesAreLegalAndDoNotMeet(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	client := cluster.Client(t)
	names := []string{
		"a", "ab", "a/b", "a/b/c", "a%2Fb", "a//b", "/a", "a/", "%", "a%", "\x00\x01", "..", ".", " ", "ü", "a?b#c",
		strings.Repeat("x", 512),
	}
	var holds []*etcdlock.Hold
	for _, name := range names {
		h, err := etcdlock.NewMutex(s, name).TryLock(within(t))
		require.NoError(t, err, "%q meets another name", name)
		require.Equal(t, name, h.Name())
		require.Equal(t, 2, strings.Count(h.Key(), "/"), "a name is one segment: %s", h.Key())
		holds = append(holds, h)
	}
	require.Equal(t, len(names), tickets(t, client))
	for _, h := range holds {
		unlock(t, h)
	}
	require.Zero(t, tickets(t, client))
}

func TestNamespacesDoNotMeet(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	mine := lock(t, etcdlock.NewMutex(s, "orders"))
	yours := lock(t, etcdlock.NewMutex(s, "orders", etcdlock.WithNamespace("shop/locks")))
	require.True(t, strings.HasPrefix(mine.Key(), "etcdlock/orders/x"), mine.Key())
	require.True(t, strings.HasPrefix(yours.Key(), "shop/locks/orders/x"), yours.Key())
	unlock(t, mine)
	unlock(t, yours)
}

// At a raw prefix the queue is shared with programs that use etcd's own package.
func TestAtPrefixSharesTheQueueWithEtcdsOwnMutex(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	ours := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "legacy/lock", etcdlock.AtPrefix())
	theirSession, err := concurrency.NewSession(cluster.Client(t))
	require.NoError(t, err)
	defer theirSession.Close()
	theirs := concurrency.NewMutex(theirSession, "legacy/lock")

	require.NoError(t, theirs.Lock(within(t)))
	_, err = ours.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	waiting := locking(within(t), ours)
	require.NoError(t, theirs.Unlock(within(t)))
	r := await(t, "the grant", waiting)
	require.NoError(t, r.err)
	require.ErrorIs(t, theirs.TryLock(within(t)), concurrency.ErrLocked)
	unlock(t, r.hold)
	require.NoError(t, theirs.TryLock(within(t)))
	require.NoError(t, theirs.Unlock(within(t)))
}

// Only the client's KV, Lease and Watcher are used, so what wraps them is respected.
func TestAClientWithANamespaceKeepsToIt(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	client.KV = namespace.NewKV(client.KV, "tenant/")
	client.Watcher = namespace.NewWatcher(client.Watcher, "tenant/")
	client.Lease = namespace.NewLease(client.Lease, "tenant/")
	one := etcdlock.NewMutex(newSession(t, client), "orders")
	two := etcdlock.NewMutex(newSession(t, client), "orders")
	h := lock(t, one)
	require.Zero(t, tickets(t, cluster.Client(t)), "at the root")
	require.Equal(t, 1, tickets(t, client))
	_, err := two.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	waiting := locking(within(t), two)
	awaitTickets(t, client, 2)
	unlock(t, h)
	r := await(t, "the grant", waiting)
	require.NoError(t, r.err)
	require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
	unlock(t, r.hold)
}

func TestWhatEtcdRefusesIsReportedAtOnceWithTheName(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace, rpctypes.ErrAuthFailed} {
		fault := cluster.Refuse("Txn", refusal, embedtest.When(putting))
		_, err := m.Lock(within(t))
		require.ErrorIs(t, err, refusal)
		require.ErrorContains(t, err, `"orders"`)
		require.Equal(t, 1, fault.Bites(), "it was not tried again")
		fault.Heal()
	}
	unlock(t, lock(t, m))
}

func TestNilArgumentsPanicWithTheReason(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	var none *session.Session
	var nobody *session.Keeper
	require.PanicsWithValue(t, "etcdlock: a queue needs a session source", func() { etcdlock.NewMutex(nil, "orders") })
	require.PanicsWithValue(t, "etcdlock: a queue needs a session source", func() { etcdlock.NewMutex(none, "orders") })
	require.PanicsWithValue(t, "etcdlock: a queue needs a session source", func() { etcdlock.NewMutex(nobody, "orders") })
	require.PanicsWithValue(t, "etcdlock: nil context", func() {
		//nolint:staticcheck // what it is about
		_, _ = etcdlock.NewMutex(s, "orders").Lock(nil)
	})
	require.PanicsWithValue(t, "etcdlock: a lock is made with its constructor", func() {
		_, _ = new(etcdlock.Mutex).Lock(context.Background())
	})
}

func TestAnUnlockThatPanicsLeavesTheHoldAsItWas(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	h := lock(t, m)
	require.PanicsWithValue(t, "etcdlock: nil context", func() {
		//nolint:staticcheck // what it is about
		_ = h.Unlock(nil)
	})
	require.NoError(t, h.Err())
	unlock(t, h)
	require.Zero(t, tickets(t, cluster.Client(t)))
}
