package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// A transaction does not outlast the hold, whatever its context.
func TestTxnReturnsWhenTheHoldEnds(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	silence := cluster.LoseRequest("Txn")
	defer silence.Heal()
	returned := make(chan error, 1)
	go func() {
		_, err := h.Txn(context.Background()).Then(clientv3.OpPut("data", "1")).Commit()
		returned <- err
	}()
	require.NoError(t, silence.Wait(within(t)))
	lose(t, client, s)
	err := await(t, "the transaction", returned)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
}

// That the hold is gone says nothing about a transaction that was sent while it was there.
func TestALostAnswerIsUnclearAndARefusalIsNot(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	fault := cluster.LoseReply("Txn", embedtest.Once())
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		_ = fault.Wait(ctx)
		cancel()
	}()
	_, err := h.Txn(ctx).Then(clientv3.OpPut("data", "1")).Commit()
	require.ErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	written, err := client.Get(within(t), "data")
	require.NoError(t, err)
	require.Len(t, written.Kvs, 1, "it did take effect")

	remove(t, client, h.Key())
	for range 2 { // the guard is refused, then the loss is known
		_, err = h.Txn(within(t)).Then(clientv3.OpPut("data", "2")).Commit()
		require.ErrorIs(t, err, etcdlock.ErrLost)
		require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestATxnWhoseContextIsOverIsNotSentAndNotUnclear(t *testing.T) {
	cluster, _ := newCluster(t)
	h := lock(t, newMutex(t, cluster))
	before := cluster.Calls("Txn")
	_, err := h.Txn(cancelled()).Then(clientv3.OpPut("data", "1")).Commit()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	require.Equal(t, before, cluster.Calls("Txn"))
	unlock(t, h)
}

// Scenario F4, for a store outside etcd.
func TestAFenceRefusesTokensBelowTheHighest(t *testing.T) {
	cluster, client := newCluster(t)
	old := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	remove(t, client, old.Key())
	next := lock(t, newMutex(t, cluster))

	var fence etcdlock.Fence
	require.ErrorIs(t, fence.Admit(0), etcdlock.ErrStale, "that is no token")
	require.NoError(t, fence.Admit(old.Token()), "nobody else has been here")
	require.NoError(t, fence.Admit(next.Token()))
	require.ErrorIs(t, fence.Admit(old.Token()), etcdlock.ErrStale)
	require.NoError(t, fence.Admit(next.Token()), "a holder may write as often as it likes")
	unlock(t, next)
	require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
}
