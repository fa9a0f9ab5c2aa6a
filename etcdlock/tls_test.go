package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestLocksAreTakenWaitedForAndLostOverTLS(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithMutualTLS(), embedtest.WithSize(3))
	client, link := cluster.Link(t)
	mine := newSession(t, client, session.WithTTL(secondTTL))
	theirs := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(mine, "orders"))
	requireBusy(t, etcdlock.NewMutex(theirs, "orders"))
	_, err := h.Txn(within(t)).Then(clientv3.OpPut("orders/last", "1")).Commit()
	require.NoError(t, err)
	waiting := locking(within(t), etcdlock.NewMutex(theirs, "orders"))
	awaitTickets(t, theirs.Client(), 2)

	// H1: what vanishes is encrypted, and makes no difference.
	link.Blackhole()
	require.ErrorIs(t, await(t, "the loss", lossOf(h)), etcdlock.ErrLost)
	next := granted(t, waiting)
	require.Greater(t, next.Token(), h.Token())
	link.Heal()
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, next.Err())
	unlock(t, next)
	awaitTickets(t, theirs.Client(), 0)
}

// H5: the connections that are made anew are encrypted as well.
func TestAWaiterOverTLSOutlivesTheRestartOfItsMember(t *testing.T) {
	cluster, _ := newCluster(t, embedtest.WithTLS())
	blocker := lock(t, newMutex(t, cluster))
	before := cluster.Calls("Watch")
	waiting := locking(within(t), newMutex(t, cluster))
	awaitWatch(t, cluster, before)
	require.NoError(t, cluster.Members()[0].Restart())
	unlock(t, blocker)
	unlock(t, granted(t, waiting))
}
