package etcdlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func TestPrefixesThatCannotBeAreRefused(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, client)
	before := cluster.Calls("Txn") + cluster.Calls("Range")
	for what, m := range map[string]*etcdlock.Mutex{
		"empty prefix":    etcdlock.NewMutex(s, "", etcdlock.AtPrefix()),
		"empty namespace": etcdlock.NewMutex(s, "orders", etcdlock.WithNamespace("")),
	} {
		for _, call := range bothCalls(m) {
			_, err := call(within(t))
			require.ErrorIs(t, err, etcdlock.ErrInvalidName, what)
			var typed *etcdlock.Error
			require.ErrorAs(t, err, &typed, what)
			require.Equal(t, m.Name(), typed.Name)
		}
	}
	require.ErrorIs(t, etcdlock.NewSemaphore(s, "", 2).Forget(within(t)), etcdlock.ErrInvalidName)
	require.Equal(t, before, cluster.Calls("Txn")+cluster.Calls("Range"))
}

func TestUnusualNamesAreLegalAndDoNotMeet(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	names := []string{
		"a", "ab", "a/b", "a/b/c", "a%2Fb", "a//b", "/a", "a/", "%", "a%", "\x00\x01", "..", ".", " ", "ü", "a?b#c",
		strings.Repeat("x", 512),
	}
	var holds []*etcdlock.Hold
	for _, name := range names {
		h := tryLock(t, etcdlock.NewMutex(s, name))
		require.Equal(t, name, h.Name())
		require.Equal(t, 2, strings.Count(h.Key(), "/"), "a name is one segment: %s", h.Key())
		holds = append(holds, h)
	}
	require.Equal(t, len(names), tickets(t, client))
	elsewhere := tryLock(t, etcdlock.NewMutex(s, "a", etcdlock.WithNamespace("shop/locks")))
	require.True(t, strings.HasPrefix(holds[0].Key(), "etcdlock/a/x"), holds[0].Key())
	require.True(t, strings.HasPrefix(elsewhere.Key(), "shop/locks/a/x"), elsewhere.Key())
	unlockAll(t, append(holds, elsewhere)...)
}

// What cannot be meant is a mistake in the program, and panics with the reason before anything is begun.
func TestMistakesPanicWithTheReason(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	var (
		none      *session.Session
		nobody    *session.Keeper
		nothing   etcdlock.Lockable
		noMutex   *etcdlock.Mutex
		noClient  *clientv3.Client
		noOption  etcdlock.Option
		noHold    *etcdlock.Hold
		noContext context.Context
		ctx       = context.Background()
		m         = etcdlock.NewMutex(s, "orders")
		striped   = etcdlock.NewStriped(s, "stock", 3)
		permits   = etcdlock.NewSemaphore(s, "pool", 3)
		election  = etcdlock.NewElection(s, "leader")
		queue     = fairqueue.New(s, "queue", fairqueue.Options{})
		term      = lead(t, election, "me")
		leads     = func(context.Context, *etcdlock.Term) error { return nil }
		work      = func(context.Context, *etcdlock.Hold) error { return nil }
		note      = func(error) {}
		healthy   = func(context.Context) error { return nil }
		slots     = etcdlock.WithSlots()
		local     = etcdlock.WithLocalHandover(time.Second, 1)
		retained  = etcdlock.WithRetention(time.Second)
		ignore    = func(string, error) {}
		minimum   = etcdlock.WithMinHold(time.Second)
	)
	for want, calls := range map[string][]func(){
		"a queue needs a session source": {
			func() { etcdlock.NewMutex(nil, "orders") },
			func() { etcdlock.NewMutex(none, "orders") },
			func() { etcdlock.NewMutex(nobody, "orders") },
			func() { etcdlock.NewStriped(nil, "stock", 1) },
		},
		"nil option": {
			func() { etcdlock.NewMutex(s, "orders", noOption) },
			func() { etcdlock.NewElection(s, "orders", etcdlock.AtPrefix(), noOption) },
			func() { etcdlock.NewMulti(s, m).With(noOption) },
			func() { _, _ = etcdlock.Inspect(ctx, client, "orders", noOption) },
		},
		"a Multi of a nil lock": {
			func() { etcdlock.NewMulti(s, m, nothing) },
			func() { etcdlock.NewMulti(s, noMutex, m) },
		},
		"a Multi of no locks":            {func() { etcdlock.NewMulti(s) }},
		"a Multi needs a session source": {func() { etcdlock.NewMulti(nil, m) }},
		"Inspect needs a client":         {func() { _, _ = etcdlock.Inspect(ctx, noClient, "orders") }},
		"InspectAll needs a client":      {func() { etcdlock.InspectAll(ctx, noClient) }},
		"FollowAll needs a client":       {func() { etcdlock.FollowAll(ctx, noClient) }},
		"ForceRelease needs a client":    {func() { _ = etcdlock.ForceRelease(ctx, nil, "orders", 1) }},
		"Do needs a lock": {
			func() { _ = etcdlock.Do(ctx, nil, work) },
			func() { _ = etcdlock.Do(ctx, noMutex, work) },
		},
		"TryDo needs a lock":                    {func() { _ = etcdlock.TryDo(ctx, nil, work) }},
		"NewLocker needs a lock":                {func() { etcdlock.NewLocker(nil, note) }},
		"NewLocker needs a function for errors": {func() { etcdlock.NewLocker(m, nil) }},
		"Reentrant needs a lock": {
			func() { etcdlock.Reentrant(nil) },
			func() { etcdlock.Reentrant(noMutex) },
		},
		"only a Mutex or a RWMutex can be re-entrant": {
			func() { etcdlock.Reentrant(etcdlock.NewRWMutex(s, "a").RLocker()) },
			func() { etcdlock.Reentrant(permits) },
			func() { etcdlock.Reentrant(allOf(s, "a")) },
		},
		"there is no function to run": {
			func() { _ = etcdlock.Do(ctx, m, nil) },
			func() { _ = etcdlock.TryDo(ctx, m, nil) },
			func() { _ = etcdlock.Reentrant(m).Do(ctx, nil) },
		},
		"DoAnyN needs a function":           {func() { _ = striped.DoAnyN(ctx, 1, nil) }},
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
			func() { _ = new(etcdlock.Election).Run(ctx, "me", leads) },
			func() { _, _ = new(etcdlock.Election).Leader(ctx) },
			func() { _, _ = new(etcdlock.Election).Candidates(ctx) },
			func() { new(etcdlock.Election).Observe(ctx) },
			func() { etcdlock.NewMulti(s, m, new(etcdlock.Mutex)) },
			func() { etcdlock.Reentrant(new(etcdlock.RWMutex)) },
		},
		"a ReentrantLock is made with Reentrant": {func() { _, _, _ = new(etcdlock.ReentrantLock).Lock(ctx) }},
		"a queue is made with New":               {func() { _, _, _ = new(fairqueue.Queue).Entries(ctx) }},
		"a hold comes from a lock": {
			func() { _ = noHold.Unlock(ctx) }, // whose Lock has failed
			func() { _ = new(etcdlock.Hold).Err() },
			func() { new(etcdlock.Hold).Context() },
			func() { _ = new(etcdlock.Hold).Ensure(ctx, 0) },
			func() { _ = new(etcdlock.Term).Resign(ctx) },
			func() { noHold.Name() },
			func() { noHold.Key() },
			func() { new(etcdlock.Hold).Token() },
			func() { new(etcdlock.Hold).Done() },
			func() { new(etcdlock.Hold).Deadline() },
			func() { new(etcdlock.Hold).Guard() },
			func() { new(etcdlock.Term).Guards() },
			func() { new(etcdlock.Hold).Shared() },
			func() { new(etcdlock.Hold).Slot() },
			func() { new(etcdlock.Hold).Txn(ctx) },
		},
		"WithSlots is not for a Mutex":     {func() { etcdlock.NewMutex(s, "a", slots) }},
		"WithSlots is not for a RWMutex":   {func() { etcdlock.NewRWMutex(s, "a", slots) }},
		"WithSlots is not for a Striped":   {func() { etcdlock.NewStriped(s, "a", 2, slots) }},
		"WithSlots is not for a Multi":     {func() { allOf(s, "a").With(slots) }},
		"WithSlots is not for an Election": {func() { etcdlock.NewElection(s, "a", slots) }},
		"WithPriority is not for a Mutex":  {func() { etcdlock.NewMutex(s, "a", etcdlock.WithPriority(1)) }},
		"AtPrefix is not for a Semaphore":  {func() { etcdlock.NewSemaphore(s, "pool", 2, etcdlock.AtPrefix()) }},

		"WithMinHold is not for an Election":     {func() { etcdlock.NewElection(s, "a", minimum) }},
		"WithLocalHandover is not for a RWMutex": {func() { etcdlock.NewRWMutex(s, "a", local) }},
		"WithRetention is not for a Striped":     {func() { etcdlock.NewStriped(s, "a", 2, retained) }},
		"WithMinHold cannot be together with WithLocalHandover or WithRetention": {
			func() { etcdlock.NewMutex(s, "a", local, minimum) },
			func() { etcdlock.NewMutex(s, "a", minimum, retained) },
		},
		"a negative priority": {func() { etcdlock.WithPriority(-1) }},
		"a health check needs a function and a positive interval": {
			func() { etcdlock.WithHealthCheck(0, healthy) },
			func() { etcdlock.WithHealthCheck(time.Second, nil) },
		},
		"the bounds of a local hand-over must be positive": {
			func() { etcdlock.WithLocalHandover(0, 1) },
			func() { etcdlock.WithLocalHandover(1, 0) },
		},
		"the time for which a lock is kept must be positive": {func() { etcdlock.WithRetention(0) }},
		"the number of stripes must be positive":             {func() { etcdlock.NewStriped(s, "stock", 0) }},
		"0 of 3 stripes": {
			func() { _, _, _ = striped.AnyN(ctx, 0) },
			func() { _, _, _ = striped.TryAnyN(ctx, 0) },
		},
		"-1 of 3 stripes":                     {func() { _, _, _ = striped.AnyN(ctx, -1) }},
		"4 of 3 stripes":                      {func() { _, _, _ = striped.TryAnyN(ctx, 4) }},
		"a Named needs a session source":      {func() { etcdlock.NewNamed(nil, ignore) }},
		"a Named needs a function for errors": {func() { etcdlock.NewNamed(s, nil) }},
		"WithRetention is not for a Named":    {func() { etcdlock.NewNamed(s, ignore, kept) }},
		"a Named is made with NewNamed":       {func() { _ = new(etcdlock.Named).Lock(ctx, "orders") }},
		"Job needs a lock":                    {func() { etcdlock.Job(nil, note, work) }},
		"Job needs a function for errors":     {func() { etcdlock.Job(m, nil, work) }},
		"Job needs a function to run":         {func() { etcdlock.Job(m, note, nil) }},
		"nil context": {
			func() { _ = etcdlock.NewNamed(s, ignore).Unlock(noContext, "orders") },
			func() { _, _ = m.Lock(noContext) },
			func() { _, _ = m.TryLock(noContext) },
			func() { _ = etcdlock.Do(noContext, m, work) },
			func() { _, _, _ = etcdlock.Reentrant(m).Lock(noContext) },
			func() { _ = permits.Resize(noContext, 3) },
			func() { _ = permits.Forget(noContext) },
			func() { permits.Sizes(noContext) },
			func() { _, _, _ = striped.Any(noContext) },
			func() { _, _ = election.Campaign(noContext, "me") },
			func() { _ = election.Run(noContext, "me", leads) },
			func() { _, _ = election.Leader(noContext) },
			func() { _, _ = election.Candidates(noContext) },
			func() { election.Observe(noContext) },
			func() { _ = term.Proclaim(noContext, "you") },
			func() { _ = term.Transfer(noContext, "you") },
			func() { _ = term.Resign(noContext) },
			func() { _ = term.Unlock(noContext) },
			func() { _ = term.Ensure(noContext, 0) },
			func() { _ = term.Downgrade(noContext) },
			func() { term.Txn(noContext) },
			func() { _, _ = etcdlock.Inspect(noContext, client, "orders") },
			func() { _ = etcdlock.ForceRelease(noContext, client, "orders", 1) },
			func() { etcdlock.InspectAll(noContext, client) },
			func() { etcdlock.FollowAll(noContext, client) },
			func() { _ = etcdlock.RequireHeld(noContext, "orders") },
			func() { _, _ = queue.Join(noContext, fairqueue.Exclusive) },
			func() { _, _, _ = queue.Entries(noContext) },
			func() { queue.Follow(noContext) },
		},
		"the size of a semaphore must be positive": {
			func() { etcdlock.NewSemaphore(s, "pool", 0) },
			func() { etcdlock.NewSemaphore(s, "pool", -1) },
		},
	} {
		for i, call := range calls {
			require.PanicsWithValue(t, "etcdlock: "+want, call, "%s, %d", want, i)
		}
	}
	for _, size := range []int64{0, -1} {
		require.Panics(t, func() { _ = permits.Resize(ctx, size) })
	}
	require.NotPanics(t, func() { etcdlock.NewSemaphore(s, "a", 2, slots) })
	require.NoError(t, term.Err(), "an Unlock that panics leaves the hold as it was")
	resign(t, term)
	require.Zero(t, tickets(t, client), "nothing has been begun")
}
