package versions

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

func TestARevokedLeaseLetsTheNextInAndTellsTheHolder(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, s := e.client(t), newSession(t, e)
		lost := lock(t, etcdlock.NewMutex(s, name(t)))
		m, ctx := etcdlock.NewMutex(newSession(t, e), name(t)), within(t)
		waiting := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return m.Lock(ctx) })

		revoke(t, admin, s.Lease())
		next := taken(t, "the next", waiting)
		require.Greater(t, next.Token(), lost.Token())
		await(t, "the loss", lost.Done())
		require.ErrorIs(t, lost.Err(), etcdlock.ErrLost)
		unlock(t, next)
	})
}

func TestAKilledProcessLetsTheNextInWhenItsLeaseRunsOut(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin := e.client(t)
		killed, err := startHolder(t, e.child(name(t), shortTTL))
		require.NoError(t, err)
		key, err := killed.holds(within(t))
		require.NoError(t, err)
		lease := leaseOf(t, admin, key)
		m, ctx := etcdlock.NewMutex(newSession(t, e), name(t), etcdlock.AtPrefix()), within(t)
		waiting := inLine(t, admin, name(t), func() (*etcdlock.Hold, error) { return m.Lock(ctx) })
		require.Empty(t, waiting)

		killed.kill()
		next := taken(t, "the next", waiting)
		left, err := admin.TimeToLive(within(t), lease)
		require.NoError(t, err)
		require.LessOrEqual(t, left.TTL, int64(0), "nobody may get in before the lease is over")
		unlock(t, next)
	})
}

func TestALostSessionIsReplacedForTheNextLock(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, k := e.client(t), newKeeper(t, e)
		m := etcdlock.NewMutex(k, name(t))
		lost := lock(t, m)
		s, err := k.Session(within(t))
		require.NoError(t, err)
		revoke(t, admin, s.Lease())
		await(t, "the loss", lost.Done())

		again := lock(t, m)
		require.Greater(t, again.Token(), lost.Token())
		require.ErrorIs(t, lost.Unlock(within(t)), etcdlock.ErrLost)
		require.NoError(t, again.Err(), "a lost hold releases nothing of its successor's")
		unlock(t, again)
	})
}

func TestWritesOfALostHoldAreRefused(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, s := e.client(t), newSession(t, e)
		held, target := lock(t, etcdlock.NewMutex(s, name(t))), "written/"+name(t)
		guard := held.Guard()
		guarded := func() bool {
			answer, err := admin.Txn(within(t)).If(guard).Then(clientv3.OpPut(target, "guarded")).Commit()
			require.NoError(t, err)
			return answer.Succeeded
		}
		_, err := held.Txn(within(t)).Then(clientv3.OpPut(target, "first")).Commit()
		require.NoError(t, err)
		require.True(t, guarded())

		revoke(t, admin, s.Lease())
		next := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
		require.False(t, guarded())
		_, err = held.Txn(within(t)).Then(clientv3.OpPut(target, "late")).Commit()
		require.ErrorIs(t, err, etcdlock.ErrLost)
		answer, err := admin.Get(within(t), target)
		require.NoError(t, err)
		require.Equal(t, "guarded", string(answer.Kvs[0].Value))
		unlock(t, next)
	})
}

func leaseOf(t *testing.T, c *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	answer, err := c.Get(within(t), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}
