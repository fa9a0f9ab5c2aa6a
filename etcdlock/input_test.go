package etcdlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
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
		fault := cluster.Refuse("Txn", refusal, embedtest.When(func(message any) bool {
			// A put without a lease only finds out what is not permitted.
			return putting(message) && message.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut().GetLease() != 0
		}))
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
	var (
		nothing  etcdlock.Lockable
		noMutex  *etcdlock.Mutex
		noClient *clientv3.Client
		noOption etcdlock.Option
		noTicket fairqueue.Option
		noHold   *etcdlock.Hold
		ctx      = context.Background()
		m        = etcdlock.NewMutex(s, "orders")
		lead     = func(context.Context, *etcdlock.Term) error { return nil }
		work     = func(context.Context, *etcdlock.Hold) error { return nil }
		note     = func(error) {}
	)
	for want, calls := range map[string][]func(){
		"nil option": {
			func() { etcdlock.NewMutex(s, "orders", noOption) },
			func() { etcdlock.NewElection(s, "orders", etcdlock.AtPrefix(), noOption) },
			func() { etcdlock.NewMulti(s, m).With(noOption) },
			func() { _, _ = etcdlock.Inspect(ctx, s.Client(), "orders", noOption) },
			func() { fairqueue.New(s, "orders", noTicket) },
			func() { _, _ = fairqueue.New(s, "orders").Join(ctx, fairqueue.Exclusive, nil) },
		},
		"a Multi of a nil lock": {
			func() { etcdlock.NewMulti(s, m, nothing) },
			func() { etcdlock.NewMulti(s, noMutex, m) },
		},
		"Inspect needs a client":      {func() { _, _ = etcdlock.Inspect(ctx, noClient, "orders") }},
		"ForceRelease needs a client": {func() { _ = etcdlock.ForceRelease(ctx, nil, "orders", 1) }},
		"Do needs a lock": {
			func() { _ = etcdlock.Do(ctx, nil, work) },
			func() { _ = etcdlock.Do(ctx, noMutex, work) },
		},
		"TryDo needs a lock":                            {func() { _ = etcdlock.TryDo(ctx, nil, work) }},
		"NewLocker needs a lock":                        {func() { etcdlock.NewLocker(nil, note) }},
		"NewLocker needs a function to tell of trouble": {func() { etcdlock.NewLocker(m, nil) }},
		"Reentrant needs a lock": {
			func() { etcdlock.Reentrant(nil) },
			func() { etcdlock.Reentrant(noMutex) },
		},
		"there is no function to run": {
			func() { _ = etcdlock.Do(ctx, m, nil) },
			func() { _ = etcdlock.TryDo(ctx, m, nil) },
			func() { _ = etcdlock.Reentrant(m).Do(ctx, nil) },
		},
		"DoAnyN needs a function":           {func() { _ = etcdlock.NewStriped(s, "orders", 2).DoAnyN(ctx, 1, nil) }},
		"Run needs a function to lead with": {func() { _ = etcdlock.NewElection(s, "orders").Run(ctx, "me", nil) }},
		"a lock is made with its constructor": {
			func() { _, _ = new(etcdlock.Mutex).Lock(ctx) },
			func() { _, _ = new(etcdlock.RWMutex).TryLock(ctx) },
			func() { _, _ = new(etcdlock.RWMutex).RLock(ctx) },
			func() { _, _ = new(etcdlock.ReadLock).Lock(ctx) },
			func() { _, _ = new(etcdlock.Multi).Lock(ctx) },
			func() { _, _ = new(etcdlock.Semaphore).Acquire(ctx, 2) },
			func() { _ = new(etcdlock.Semaphore).Resize(ctx, 2) },
			func() { _ = new(etcdlock.Semaphore).Forget(ctx) },
			func() { new(etcdlock.Semaphore).Sizes(ctx) },
			func() { _, _, _ = new(etcdlock.Striped).Any(ctx) },
			func() { new(etcdlock.Striped).For("key") },
			func() { new(etcdlock.Striped).Stripe(0) },
			func() { _, _ = new(etcdlock.Election).Campaign(ctx, "me") },
			func() { _ = new(etcdlock.Election).Run(ctx, "me", lead) },
			func() { _, _ = new(etcdlock.Election).Leader(ctx) },
			func() { _, _ = new(etcdlock.Election).Candidates(ctx) },
			func() { new(etcdlock.Election).Observe(ctx) },
			func() { etcdlock.NewMulti(s, m, new(etcdlock.Mutex)) },
			func() { etcdlock.Reentrant(new(etcdlock.RWMutex)) },
		},
		"a ReentrantLock is made with Reentrant": {func() { _, _, _ = new(etcdlock.ReentrantLock).Lock(ctx) }},
		"a queue is made with New":               {func() { _, _ = new(fairqueue.Queue).Entries(ctx) }},
		"a hold comes from a lock": {
			func() { _ = noHold.Unlock(ctx) }, // whose Lock has failed
			func() { _ = new(etcdlock.Hold).Err() },
			func() { new(etcdlock.Hold).Context() },
			func() { _ = new(etcdlock.Hold).Ensure(ctx, 0) },
			func() { _ = new(etcdlock.Term).Resign(ctx) },
		},
	} {
		for i, call := range calls {
			require.PanicsWithValue(t, "etcdlock: "+want, call, "%s, %d", want, i)
		}
	}
	require.Zero(t, tickets(t, s.Client()), "nothing has been begun")
}

func TestANilContextPanicsWithTheReason(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	var none context.Context
	m := etcdlock.NewMutex(s, "orders")
	semaphore := etcdlock.NewSemaphore(s, "permits", 2)
	election := etcdlock.NewElection(s, "leader")
	term, err := election.Campaign(within(t), "me")
	require.NoError(t, err)
	queue := fairqueue.New(s, "queue")
	for i, call := range []func(){
		func() { _, _ = m.Lock(none) },
		func() { _, _ = m.TryLock(none) },
		func() { _ = etcdlock.Do(none, m, func(context.Context, *etcdlock.Hold) error { return nil }) },
		func() { _, _, _ = etcdlock.Reentrant(m).Lock(none) },
		func() { _ = semaphore.Resize(none, 3) },
		func() { _ = semaphore.Forget(none) },
		func() { semaphore.Sizes(none) },
		func() { _, _, _ = etcdlock.NewStriped(s, "stripes", 2).Any(none) },
		func() { _, _ = election.Campaign(none, "me") },
		func() { _ = election.Run(none, "me", func(context.Context, *etcdlock.Term) error { return nil }) },
		func() { _, _ = election.Leader(none) },
		func() { _, _ = election.Candidates(none) },
		func() { election.Observe(none) },
		func() { _ = term.Proclaim(none, "you") },
		func() { _ = term.Transfer(none, "you") },
		func() { _ = term.Resign(none) },
		func() { _ = term.Ensure(none, 0) },
		func() { _ = term.Downgrade(none) },
		func() { term.Txn(none) },
		func() { _, _ = etcdlock.Inspect(none, s.Client(), "orders") },
		func() { _ = etcdlock.ForceRelease(none, s.Client(), "orders", 1) },
		func() { _ = etcdlock.RequireHeld(none, "orders") },
		func() { _, _ = queue.Join(none, fairqueue.Exclusive) },
		func() { _, _ = queue.Entries(none) },
		func() { queue.Follow(none) },
	} {
		require.PanicsWithValue(t, "etcdlock: nil context", call, i)
	}
	require.NoError(t, term.Err())
	resign(t, term)
	require.Zero(t, tickets(t, s.Client()))
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
