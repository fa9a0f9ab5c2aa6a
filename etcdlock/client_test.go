package etcdlock_test

import (
	"context"
	"iter"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// What goes on under a Keeper of a client that is closed, each in its own goroutine, ends and says why.
func TestEverythingEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	ctx := t.Context() // which lasts
	for name, start := range map[string]func(t *testing.T, src session.Source, began func()) error{
		"Observe": func(_ *testing.T, src session.Source, began func()) (last error) {
			for leader, err := range etcdlock.NewElection(src, "taken").Observe(ctx) {
				if last = err; !leader.Vacant() {
					began()
				}
			}
			return last
		},
		"Sizes": func(_ *testing.T, src session.Source, began func()) (last error) {
			for _, err := range etcdlock.NewSemaphore(src, "permits", 2).Sizes(ctx) {
				if last = err; err == nil {
					began()
				}
			}
			return last
		},
		"Run of a leader": func(_ *testing.T, src session.Source, began func()) error {
			return etcdlock.NewElection(src, "mine").Run(ctx, "me", func(ctx context.Context, _ *etcdlock.Term) error {
				began()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
		"a hold": func(t *testing.T, src session.Source, began func()) error {
			h := lock(t, etcdlock.NewMutex(src, "free"))
			began()
			<-h.Done()
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return h.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, other := newCluster(t)
			lead(t, etcdlock.NewElection(newSession(t, other), "taken"), "other")
			client, err := cluster.NewClient()
			require.NoError(t, err)
			keeper := session.Keep(client, session.WithTTL(longTTL))
			watches := cluster.Calls("Watch")
			began := make(chan struct{}, 10)
			ended := background(func() error { return start(t, keeper, func() { began <- struct{}{} }) })
			await(t, "the beginning", began)
			if name == "Observe" || name == "Sizes" {
				awaitWatch(t, cluster, watches)
			}
			require.NoError(t, client.Close())
			require.ErrorContains(t, await(t, "the end of "+name, ended), "the client was closed")
			require.NoError(t, keeper.Close(within(t)))
		})
	}
}

func TestAWaitOfEveryKindEndsWhenTheClientIsClosed(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		client, err := b.cluster.NewClient()
		require.NoError(t, err)
		keeper := session.Keep(client, session.WithTTL(longTTL))
		blocker := lock(t, b.blocker())
		s, before := current(t, keeper), b.cluster.Calls("Watch")
		waiting := b.wait(t.Context(), t, b.open(keeper, "orders"), 1)
		awaitWatch(t, b.cluster, before) // so that it knows that it is in line
		require.NoError(t, client.Close())
		r := await(t, "the end of the wait", waiting)
		require.ErrorIs(t, r.err, etcdlock.ErrLost)
		require.ErrorContains(t, r.err, "the client was closed")
		require.NoError(t, keeper.Close(within(t)))
		unlock(t, blocker)
		revoke(t, b.client, s) // what nobody else can do any more
	})
}

func TestTheCallsOfEveryKindReportALossWhenTheClientIsClosed(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		client, err := b.cluster.NewClient()
		require.NoError(t, err)
		keeper, lost := session.Keep(client), newSession(t, client)
		require.NoError(t, client.Close())
		for _, src := range []session.Source{keeper, lost} {
			l := b.open(src, "orders")
			_, err := l.Lock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrLost)
			_, err = l.TryLock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrLost)
			require.ErrorContains(t, err, "the client was closed")
		}
	})
}

func TestEveryOtherCallReportsALossWhenTheClientIsClosed(t *testing.T) {
	cluster, _ := newCluster(t)
	client, err := cluster.NewClient()
	require.NoError(t, err)
	keeper := session.Keep(client)
	require.NoError(t, client.Close())
	election, permits := etcdlock.NewElection(keeper, "x"), etcdlock.NewSemaphore(keeper, "x", 2)
	for name, call := range map[string]func(ctx context.Context) error{
		"Session": func(ctx context.Context) error { _, err := keeper.Session(ctx); return err },
		"New":     func(ctx context.Context) error { _, err := session.New(ctx, client); return err },
		"Run": func(ctx context.Context) error {
			return election.Run(ctx, "me", func(context.Context, *etcdlock.Term) error { return nil })
		},
		"Leader":       func(ctx context.Context) error { _, err := election.Leader(ctx); return err },
		"Candidates":   func(ctx context.Context) error { _, err := election.Candidates(ctx); return err },
		"Observe":      func(ctx context.Context) error { return lastOf(election.Observe(ctx)) },
		"Resize":       func(ctx context.Context) error { return permits.Resize(ctx, 3) },
		"Sizes":        func(ctx context.Context) error { return lastOf(permits.Sizes(ctx)) },
		"Inspect":      func(ctx context.Context) error { _, err := etcdlock.Inspect(ctx, client, "x"); return err },
		"InspectAll":   func(ctx context.Context) error { return lastOf(etcdlock.InspectAll(ctx, client)) },
		"FollowAll":    func(ctx context.Context) error { return lastOf(etcdlock.FollowAll(ctx, client)) },
		"ForceRelease": func(ctx context.Context) error { return etcdlock.ForceRelease(ctx, client, "x", 1) },
	} {
		err := call(within(t))
		require.ErrorIs(t, err, etcdlock.ErrLost, name)
		require.ErrorContains(t, err, "the client was closed", name)
	}
}

// lastOf returns the last error of a sequence.
func lastOf[T any](all iter.Seq2[T, error]) (last error) {
	for _, last = range all {
	}
	return last
}

// awaitState waits until the client's connection is in a state.
func awaitState(t *testing.T, c *clientv3.Client, want connectivity.State) {
	t.Helper()
	conn := c.ActiveConnection()
	for state := conn.GetState(); state != want; state = conn.GetState() {
		conn.Connect()
		require.True(t, conn.WaitForStateChange(within(t), state))
	}
}

// Requests of etcd's client wait for a connection, so that their own errors do not name the reason.
func TestErrorsSayThatTheConnectionIsBroken(t *testing.T) {
	cluster, onlooker := newCluster(t)
	inTheWay := lock(t, etcdlock.NewMutex(newSession(t, onlooker), "orders"))
	client, link := cluster.Link(t)
	s := newSession(t, client)
	h := lock(t, etcdlock.NewMutex(s, "held"))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, etcdlock.NewMutex(s, "orders"))
	awaitTickets(t, onlooker, 3)

	trouble := regexp.MustCompile("connection error|no connection to") // the latter while it is tried again
	link.Cut()
	awaitState(t, client, connectivity.TransientFailure)
	cancel()
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	_, txn := h.Txn(short).Then(clientv3.OpPut("data", "")).Commit()
	for what, err := range map[string]error{
		"a waiter": await(t, "the waiter", waiting).err,
		"a lock":   expiring(t, etcdlock.NewMutex(s, "other")),
		"a txn":    txn,
	} {
		require.Len(t, trouble.FindAllString(err.Error(), -1), 1, "%s: %v", what, err)
	}
	link.Heal()
	unlock(t, h)
	unlock(t, inTheWay)
}

// tenantOf returns a client that sees the keys below a prefix only, as if there were no others.
func tenantOf(t *testing.T, cluster *embedtest.Cluster, prefix string) *clientv3.Client {
	t.Helper()
	client := cluster.Client(t)
	client.KV = namespace.NewKV(client.KV, prefix)
	client.Watcher = namespace.NewWatcher(client.Watcher, prefix)
	client.Lease = namespace.NewLease(client.Lease, prefix)
	return client
}

// All is done next to a neighbour in another namespace that has the lock of the same name all the time.
func TestEveryKindOfLockKeepsToTheNamespaceOfItsClient(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		root := b.client
		b.client = tenantOf(t, b.cluster, "tenant/")
		b.session = newSession(t, b.client)
		neighbour := lock(t, b.open(newSession(t, tenantOf(t, b.cluster, "neighbour/")), "orders"))
		h := lock(t, b.open(b.session, "orders"))
		require.NoError(t, commit(within(t), h))
		for _, key := range keysAt(t, root, "") {
			require.True(t, strings.HasPrefix(key, "tenant/") || strings.HasPrefix(key, "neighbour/"), key)
		}
		remove(t, root, "tenant/orders/last")
		unlock(t, h)
		b.everything(t, newSession(t, tenantOf(t, b.cluster, "tenant/")))
		require.NoError(t, neighbour.Err())
		unlock(t, neighbour)
		requireNothingLeft(t, root)
	})
}

func TestObserversAndSizesKeepToTheNamespaceOfTheirClient(t *testing.T) {
	cluster, root := newCluster(t)
	client := tenantOf(t, cluster, "tenant/")
	s := newSession(t, client)
	election := etcdlock.NewElection(s, "controller")
	lead(t, etcdlock.NewElection(newSession(t, root), "controller"), "at the root")
	seen := observing(within(t), election, "end")
	require.True(t, await(t, "the present state", seen.first).Vacant())
	term := lead(t, election, "start")
	require.NoError(t, term.Proclaim(within(t), "end"))
	require.Equal(t, []string{"", "start", "end"}, values(await(t, "the observer", seen.all)))
	resign(t, term)

	permits := etcdlock.NewSemaphore(s, "orders", 2)
	unlock(t, lock(t, permits))
	require.NoError(t, permits.Resize(within(t), 3))
	for size, err := range permits.Sizes(within(t)) {
		require.NoError(t, err)
		require.EqualValues(t, 3, size)
		break
	}
	require.Zero(t, inspect(t, root, "orders").Size)
}
