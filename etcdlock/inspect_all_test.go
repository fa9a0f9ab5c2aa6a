package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// inspectAll returns all queues by prefix.
func inspectAll(t *testing.T, client *clientv3.Client, opts ...etcdlock.Option) map[string]etcdlock.Queue {
	t.Helper()
	all := make(map[string]etcdlock.Queue)
	for q, err := range etcdlock.InspectAll(within(t), client, opts...) {
		require.NoError(t, err)
		require.NotContains(t, all, q.Prefix, "it is yielded once")
		all[q.Prefix] = q
	}
	return all
}

func putKey(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	require.NoError(t, session.Retry(within(t), func(ctx context.Context) error {
		_, err := client.Put(ctx, key, value)
		return err
	}))
}

func TestInspectAllSeesWhatInspectDoesOfEveryKind(t *testing.T) {
	for what, opts := range map[string][]etcdlock.Option{
		"in the namespace": nil, "in another one": {etcdlock.WithNamespace("shop/eu")}, "at prefixes": {etcdlock.AtPrefix()},
	} {
		t.Run(what, func(t *testing.T) {
			cluster, client := newCluster(t)
			s := newSession(t, cluster.Client(t))
			names := []string{"a mutex", "readers/below", "readers/above/it", "50%", "readers", "leader", "one", "two"}
			for _, name := range names[:4] {
				lock(t, etcdlock.NewMutex(s, name, opts...))
			}
			lock(t, etcdlock.NewRWMutex(s, "readers", opts...).RLocker())
			lock(t, etcdlock.NewRWMutex(s, "readers", opts...).RLocker())
			lead(t, etcdlock.NewElection(s, "leader", opts...), "me")
			lock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "one", opts...), etcdlock.NewMutex(s, "two", opts...)))
			if what != "at prefixes" { // which semaphores do not have
				lock(t, etcdlock.NewSemaphore(s, "permits", 3, append(opts, etcdlock.WithSlots())...))
				unlock(t, lock(t, etcdlock.NewSemaphore(s, "free permits", 2, opts...)))
				names = append(names, "permits", "free permits")
			}
			leases := cluster.Calls("LeaseTimeToLive")
			seen := inspectAll(t, client, opts...)
			require.Equal(t, leases, cluster.Calls("LeaseTimeToLive"))
			want := make(map[string]etcdlock.Queue)
			for _, name := range names {
				q := inspect(t, client, name, opts...)
				for i := range q.Places {
					require.Positive(t, q.Places[i].TTL)
					q.Places[i].TTL = 0 // which InspectAll does not read
				}
				want[q.Prefix] = q
			}
			require.Equal(t, want, seen)
		})
	}
}

// What other programs have put there stands in line, so it is shown.
func TestInspectAllShowsForeignKeys(t *testing.T) {
	cluster, client := newCluster(t)
	s, err := concurrency.NewSession(cluster.Client(t), concurrency.WithTTL(600))
	require.NoError(t, err)
	defer s.Close()
	theirs := concurrency.NewMutex(s, "etcdlock/theirs")
	require.NoError(t, theirs.Lock(within(t)))
	putKey(t, client, "etcdlock/stray/by hand", "?")
	putKey(t, client, "etcdlock/not%escaped/key", "?")
	putKey(t, client, "etcdlock/not a queue", "?")
	putKey(t, client, "etcdlock/orders/below/it", "?")
	putKey(t, client, "etcdlockk/orders/x1-0", "?")
	seen := inspectAll(t, client)
	require.Len(t, seen, 3)
	require.Equal(t, theirs.Key(), seen["etcdlock/theirs/"].Places[0].Key)
	require.Equal(t, "stray", seen["etcdlock/stray/"].Name)
	require.Equal(t, "?", seen["etcdlock/stray/"].Places[0].Value)
	require.Equal(t, "not%escaped", seen["etcdlock/not%escaped/"].Name)

	some := inspectAll(t, client, etcdlock.AtPrefix(), etcdlock.WithNamespace("etcdlock"))
	require.Equal(t, theirs.Key(), some["etcdlock/theirs/"].Places[0].Key)
	require.Equal(t, "etcdlock/theirs", some["etcdlock/theirs/"].Name)
	require.NotContains(t, some, "etcdlockk/orders/")

	for _, key := range []string{"jobs/0", "jobs/1/x1-0", "jobs/x1-0"} {
		putKey(t, client, key, "")
	}
	require.Len(t, inspectAll(t, client, etcdlock.AtPrefix())["jobs/"].Places, 2, "those before and those after the queue below it")
}

// fill makes n queues, of one to three places, each with a revision of its own.
func fill(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	for place := range 3 {
		var ops []clientv3.Op
		for i := place; i < n; i++ {
			if i%3 >= place {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("etcdlock/%05d/x%x-0", i, place+1), ""))
			}
		}
		for some := range slices.Chunk(ops, 100) {
			_, err := client.Txn(within(t)).Then(some...).Commit()
			require.NoError(t, err)
		}
	}
}

func TestInspectAllReadsPagesOfOneRevision(t *testing.T) {
	cluster, client := newCluster(t)
	fill(t, client, 1000)
	before := cluster.Calls("Range")
	page := cluster.Hold("Range", embedtest.Once(), embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && r.Revision > 0
	}))
	seen := make(map[string]int)
	read := background(func() (last error) {
		for q, err := range etcdlock.InspectAll(t.Context(), client) {
			seen[q.Name], last = len(q.Places), err
		}
		return last
	})
	require.NoError(t, page.Wait(within(t)))
	remove(t, client, "etcdlock/00999/x1-0")
	putKey(t, client, "etcdlock/later/x1-0", "")
	page.Heal()
	require.NoError(t, await(t, "the list", read))
	require.Len(t, seen, 1000)
	for i := range 1000 {
		require.Equal(t, 1+i%3, seen[fmt.Sprintf("%05d", i)])
	}
	require.EqualValues(t, 4, cluster.Calls("Range")-before)
}

func TestInspectAllEndsWithItsLoopItsContextOrAnError(t *testing.T) {
	cluster, client := newCluster(t)
	fill(t, client, 10)
	for _, err := range etcdlock.InspectAll(within(t), client) {
		require.NoError(t, err)
		break
	}
	last := func(ctx context.Context, opts ...etcdlock.Option) (err error) {
		n := 0
		for _, err = range etcdlock.InspectAll(ctx, client, opts...) {
			n++
		}
		require.Equal(t, 1, n)
		return err
	}
	require.ErrorIs(t, last(cancelled()), context.Canceled)
	require.ErrorIs(t, last(within(t), etcdlock.WithNamespace("")), etcdlock.ErrInvalidName)
	cluster.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	err := last(within(t))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorContains(t, err, `must not read all keys that begin with "etcdlock/"`)
	var typed *etcdlock.Error
	require.ErrorAs(t, err, &typed)
}

// A lost answer, and a member that is away, are waited out.
func TestInspectAllAsksAgain(t *testing.T) {
	cluster, client := newCluster(t)
	fill(t, client, 300)
	cluster.LoseReply("Range", embedtest.Once(), embedtest.When(func(message any) bool {
		_, ok := message.(*etcdserverpb.RangeResponse)
		return ok
	}))
	require.Len(t, inspectAll(t, client), 300)
}

// A session of one user is no reason to see another's: a name is only what is in its own folder.
func TestInspectAllNeedsReadOnTheNamespaceOnly(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("root", embedtest.User{
		Name: "viewer", Password: "viewer", Grants: []embedtest.Grant{embedtest.Read("etcdlock/")},
	}))
	h := lock(t, etcdlock.NewMutex(session.Keep(cluster.ClientAs(t, "root")), "orders"))
	viewer := cluster.ClientAs(t, "viewer")
	require.Len(t, inspectAll(t, viewer), 1)
	for _, err := range etcdlock.InspectAll(within(t), viewer, etcdlock.AtPrefix()) {
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	}
	require.True(t, strings.HasPrefix(h.Key(), "etcdlock/orders/"))
}
