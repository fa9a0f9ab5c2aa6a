package etcdlock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// requireLost says that a hold knows of its loss and that everything tells so.
func requireLost(t *testing.T, h *etcdlock.Hold) {
	t.Helper()
	await(t, "the loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, context.Cause(h.Context()), etcdlock.ErrLost)
	_, err := h.Txn(within(t)).Then(clientv3.OpPut("data", "stale")).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorIs(t, h.Ensure(within(t), 1), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, h.Unlock(within(t)), "the second call does nothing")
}

func TestARevokedLeaseIsTheLossOfEveryKindOfHold(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		s := newSession(t, b.cluster.Client(t))
		holds := b.fill(t, b.open(s, "orders"))
		waiting := b.wait(within(t), t, b.blocker(), len(holds))
		revoke(t, b.client, s)
		next := granted(t, waiting)
		require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
		for _, h := range holds {
			requireLost(t, h)
			require.Greater(t, next.Token(), h.Token())
		}
		require.NoError(t, next.Err())
		unlock(t, next)
		require.Empty(t, keysAt(t, b.client, "data"))
	})
}

func TestAWaiterWhoseLeaseIsRevokedIsToldAndNeverGranted(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		blocker := lock(t, b.blocker())
		s := newSession(t, b.cluster.Client(t))
		waiting := b.wait(within(t), t, b.open(s, "orders"), 1)
		lose(t, b.client, s)
		r := await(t, "the waiter", waiting)
		require.ErrorIs(t, r.err, etcdlock.ErrLost)
		require.Nil(t, r.hold)
		unlock(t, blocker)
	})
}

// The waiter finds out when it looks the next time, at the latest when its turn
// would have come. Candidates are in line again: see TestACandidateWhoseKeyIsDeletedIsInLineAgainAtTheEnd.
func TestAWaiterWhoseKeyIsDeletedIsNeverGranted(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		if b.elects {
			return
		}
		blocker := lock(t, b.blocker())
		waiting := b.wait(within(t), t, b.orders(t), 1)
		for _, key := range keysAt(t, b.client, b.queue("orders")+"/") {
			if key != blocker.Key() {
				remove(t, b.client, key)
			}
		}
		unlock(t, blocker)
		r := await(t, "the waiter", waiting)
		require.ErrorIs(t, r.err, etcdlock.ErrLost)
		require.Nil(t, r.hold)
	})
}

// A hold watches its keys when it is a second old, so
// all kinds share a cluster and wait for that together.
func TestADeletedKeyIsTheLossOfTheWholeHold(t *testing.T) {
	cluster, client := newCluster(t)
	s, theirs := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	type victim struct {
		kind
		name string
		etcdlock.Locker
		hold *etcdlock.Hold
		key  string
	}
	var victims []victim
	before, watches := cluster.Calls("Watch"), 0
	for i, k := range kinds {
		for j := range k.keys {
			name := fmt.Sprintf("orders %c%c", 'a'+i, 'a'+j)
			l := k.open(s, name)
			h := lock(t, l)
			require.Len(t, keysOf(h), k.keys, k.title)
			victims = append(victims, victim{k, name, l, h, keysOf(h)[j]})
			watches += k.keys
		}
	}
	require.Eventually(t, func() bool { return cluster.Calls("Watch") >= before+int64(watches) }, patience, waitABit)
	for _, v := range victims {
		require.NoError(t, v.hold.Err())
		remove(t, client, v.key)
		await(t, "the loss of a "+v.title, v.hold.Done())
	}
	for _, v := range victims {
		// What is left of it keeps nobody waiting, although nobody has called Unlock.
		unlock(t, lock(t, v.open(theirs, v.name)))
		requireLost(t, v.hold)
		again := lock(t, v.Locker)
		if v.title == "Mutex" {
			require.Equal(t, v.key, again.Key(), "the name is free for another ticket")
		}
		require.ErrorIs(t, v.hold.Err(), etcdlock.ErrLost, "and the old hold is none the better for it")
		require.NoError(t, again.Err(), v.title)
		unlock(t, again)
	}
	require.NoError(t, s.Err(), "only the holds were lost")
	require.Empty(t, keysAt(t, client, "data"))
	requireNothingLeft(t, client)
}

// Nobody has told the holder yet.
func TestAGuardedWriteIsRefusedIfAnyKeyOfTheHoldIsGone(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.orders(t)
		for i := range b.keys {
			h := lock(t, l)
			remove(t, b.client, keysOf(h)[i])
			require.NoError(t, h.Err(), "it has not noticed")
			answer, err := b.client.Txn(within(t)).If(h.Guards()...).Then(clientv3.OpPut("data", "stale")).Commit()
			require.NoError(t, err)
			require.False(t, answer.Succeeded)
			_, err = h.Txn(within(t)).Then(clientv3.OpPut("data", "stale")).Else(clientv3.OpPut("data", "stale")).Commit()
			require.ErrorIs(t, err, etcdlock.ErrLost)
			requireLost(t, h)
			requireNothingLeft(t, b.client)
		}
	})
}

func TestUnlockAfterALossLeavesTheNextOwnerOfEveryKindAlone(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.open(b.session, "orders")
		for i := range b.keys {
			old := lock(t, l)
			remove(t, b.client, keysOf(old)[i])
			waiting := locking(within(t), l)
			require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
			next := granted(t, waiting)
			require.NoError(t, old.Unlock(within(t)))
			require.Greater(t, next.Token(), old.Token())
			answer, err := next.Txn(within(t)).Commit()
			require.NoError(t, err, "all of its keys are there")
			require.True(t, answer.Succeeded)
			unlock(t, next)
		}
	})
}

func TestClosingTheSessionReleasesEveryKind(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		s := newSession(t, b.cluster.Client(t))
		h := lock(t, b.open(s, "orders"))
		waiting := b.wait(within(t), t, b.blocker(), 1)
		require.NoError(t, s.Close(within(t)))
		await(t, "the end", h.Done())
		require.ErrorIs(t, h.Err(), etcdlock.ErrClosed)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrClosed)
		unlock(t, granted(t, waiting))
		_, err := b.open(s, "orders").Lock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrClosed)
	})
}

func TestAKeeperLocksEveryKindAgainAfterALoss(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		keeper := keep(t, b.cluster.Client(t))
		l := b.open(keeper, "orders")
		for _, call := range bothCalls(l) {
			old := lock(t, l)
			revoke(t, b.client, current(t, keeper)) // the next call is the first to find out
			again, err := call(within(t))
			require.NoError(t, err)
			require.Greater(t, again.Token(), old.Token())
			requireLost(t, old)
			require.NoError(t, again.Err())
			unlock(t, again)
		}
		require.NoError(t, keeper.Close(within(t)))
	})
}

func TestTxnOfEveryKindIsEtcdsOwn(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		h := lock(t, b.orders(t))
		absent := clientv3.Compare(clientv3.CreateRevision("data"), "=", 0)
		for _, fresh := range []bool{true, false} {
			answer, err := h.Txn(within(t)).If(absent).Then(clientv3.OpPut("data", "1")).
				Else(clientv3.OpGet("data"), clientv3.OpDelete("data")).Commit()
			require.NoError(t, err)
			require.Equal(t, fresh, answer.Succeeded, "that of the user's comparison, not of the guards")
			require.Positive(t, answer.Header.Revision)
			if !fresh {
				require.Equal(t, "1", string(answer.Responses[0].GetResponseRange().Kvs[0].Value))
			}
		}
		answer, err := b.client.Txn(within(t)).If(h.Guards()...).Commit()
		require.NoError(t, err)
		require.True(t, answer.Succeeded)
		unlock(t, h)
		_, err = h.Txn(within(t)).Then(clientv3.OpPut("data", "2")).Commit()
		require.ErrorIs(t, err, etcdlock.ErrUnlocked)
	})
}
