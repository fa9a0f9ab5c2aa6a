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

// All is done next to a neighbour in another namespace who has the lock of the same name all the time.
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
