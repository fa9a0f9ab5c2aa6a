package etcdlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// tenantOf returns a client that sees the keys below a prefix only, as if there were no others.
func tenantOf(t *testing.T, cluster *embedtest.Cluster, prefix string) *clientv3.Client {
	t.Helper()
	client := cluster.Client(t)
	client.KV = namespace.NewKV(client.KV, prefix)
	client.Watcher = namespace.NewWatcher(client.Watcher, prefix)
	client.Lease = namespace.NewLease(client.Lease, prefix)
	return client
}

// Every kind is taken, waited for, forced open and released, next to somebody in another namespace
// who has the lock of the same name all the time.
func TestEveryKindOfLockKeepsToTheNamespaceOfItsClient(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.title, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			root := cluster.Client(t)
			b := &bench{kind: k, cluster: cluster, client: tenantOf(t, cluster, "tenant/")}
			b.session = newSession(t, b.client)
			neighbour := lock(t, k.open(newSession(t, tenantOf(t, cluster, "neighbour/")), "orders"))
			inTheWay := lock(t, b.blocker())

			s := newSession(t, tenantOf(t, cluster, "tenant/"))
			l := k.open(s, "orders")
			waiting := b.wait(within(t), t, l, 1)
			for _, key := range keysAt(t, root, "") {
				require.True(t, strings.HasPrefix(key, "tenant/") || strings.HasPrefix(key, "neighbour/"), key)
			}
			q, err := etcdlock.Inspect(within(t), b.client, k.queue("orders"), etcdlock.AtPrefix())
			require.NoError(t, err)
			require.Len(t, q.Places, 2, "the neighbour is somewhere else")
			require.Equal(t, inTheWay.Key(), q.Places[0].Key)
			require.Positive(t, q.Places[0].TTL)
			require.NoError(t, etcdlock.ForceRelease(within(t), b.client, q.Places[0].Key, q.Places[0].Token))
			h := granted(t, waiting)
			require.ErrorIs(t, await(t, "the loss", lossOf(inTheWay)), etcdlock.ErrLost)

			_, err = h.Txn(within(t)).Then(clientv3.OpPut("last", "1")).Commit()
			require.NoError(t, err)
			require.Contains(t, keysAt(t, root, ""), "tenant/last")
			remove(t, root, "tenant/last")
			remove(t, root, "tenant/"+h.Key())
			require.ErrorIs(t, await(t, "the loss", lossOf(h)), etcdlock.ErrLost)
			require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)

			unlock(t, lock(t, l))
			h = tryLock(t, l)
			unlock(t, h)
			require.NoError(t, neighbour.Err())
			unlock(t, neighbour)
			requireNothingLeft(t, root)
		})
	}
}

func TestObserversAndSizesKeepToTheNamespaceOfTheirClient(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	root, client := cluster.Client(t), tenantOf(t, cluster, "tenant/")
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
	q, err := etcdlock.Inspect(within(t), root, "orders")
	require.NoError(t, err)
	require.Zero(t, q.Size)
}
