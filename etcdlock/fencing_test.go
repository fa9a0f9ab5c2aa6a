package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// Scenarios F1 and F3.
func TestTokensRiseFromOwnerToOwnerAndNeverChange(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	mutexes := []*etcdlock.Mutex{
		etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"),
		etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"),
	}
	var last etcdlock.Token
	tokens := make(map[*etcdlock.Hold]etcdlock.Token)
	for i := range 20 {
		h := lock(t, mutexes[i%2])
		require.Greater(t, h.Token(), last)
		last = h.Token()
		tokens[h] = last
		answer, err := client.Get(within(t), h.Key())
		require.NoError(t, err)
		require.EqualValues(t, last, answer.Kvs[0].CreateRevision)
		if i%5 == 4 { // lost rather than released
			_, err := client.Delete(within(t), h.Key())
			require.NoError(t, err)
			continue
		}
		unlock(t, h)
	}
	for h, token := range tokens {
		require.Equal(t, token, h.Token())
		_ = h.Unlock(within(t)) // those that were lost
	}
}

// Scenario F4: the writes of a holder that has been replaced without knowing it.
func TestGuardedWritesOfAReplacedHolderAreRefused(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	old := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	_, err := client.Delete(within(t), old.Key())
	require.NoError(t, err)
	next := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	_, err = next.Txn(within(t)).Then(clientv3.OpPut("data", "next")).Commit()
	require.NoError(t, err)

	require.NoError(t, old.Err(), "it has not noticed")
	answer, err := client.Txn(within(t)).If(old.Guard()).Then(clientv3.OpPut("data", "stale")).Commit()
	require.NoError(t, err)
	require.False(t, answer.Succeeded)
	_, err = old.Txn(within(t)).Then(clientv3.OpPut("data", "stale")).Else(clientv3.OpPut("data", "stale")).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorIs(t, old.Err(), etcdlock.ErrLost, "now it has")

	data, err := client.Get(within(t), "data")
	require.NoError(t, err)
	require.Equal(t, "next", string(data.Kvs[0].Value))
	require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
	unlock(t, next)
	_, err = next.Txn(within(t)).Then(clientv3.OpPut("data", "too late")).Commit()
	require.ErrorIs(t, err, etcdlock.ErrUnlocked)
}

// A transaction does not outlast the hold, whatever its context.
func TestTxnReturnsWhenTheHoldEnds(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
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
	_, err := cluster.Client(t).Revoke(within(t), s.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	err = await(t, "the transaction", returned)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorIs(t, err, etcdlock.ErrUnclear)
}

// That the hold is gone says nothing about a transaction that was sent while it was there.
func TestALostAnswerIsUnclearAndARefusalIsNot(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	fault := cluster.LoseReply("Txn", embedtest.Once())
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		_ = fault.Wait(ctx)
		cancel()
	}()
	_, err := h.Txn(ctx).Then(clientv3.OpPut("data", "1")).Commit()
	require.ErrorIs(t, err, etcdlock.ErrUnclear)
	require.ErrorIs(t, err, context.Canceled)
	written, err := client.Get(within(t), "data")
	require.NoError(t, err)
	require.Len(t, written.Kvs, 1, "it did take effect")

	_, err = client.Delete(within(t), h.Key())
	require.NoError(t, err)
	for range 2 { // the guard is refused, then the loss is known
		_, err = h.Txn(within(t)).Then(clientv3.OpPut("data", "2")).Commit()
		require.ErrorIs(t, err, etcdlock.ErrLost)
		require.NotErrorIs(t, err, etcdlock.ErrUnclear)
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestATxnWhoseContextIsOverIsNotSentAndNotUnclear(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	before := cluster.Calls("Txn")
	_, err := h.Txn(cancelled()).Then(clientv3.OpPut("data", "1")).Commit()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, etcdlock.ErrUnclear)
	require.Equal(t, before, cluster.Calls("Txn"))
	unlock(t, h)
}

func TestTxnIsEtcdsOwnWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	missing := clientv3.Compare(clientv3.CreateRevision("data"), "=", 0)
	write := func() *clientv3.TxnResponse {
		answer, err := h.Txn(within(t)).If(missing).
			Then(clientv3.OpPut("data", "1")).
			Else(clientv3.OpGet("data")).Commit()
		require.NoError(t, err)
		return answer
	}
	first := write()
	require.True(t, first.Succeeded)
	require.Positive(t, first.Header.Revision)
	second := write()
	require.False(t, second.Succeeded, "a comparison of the user's own, not the guard, did not hold")
	require.Equal(t, "1", string(second.Responses[0].GetResponseRange().Kvs[0].Value))
	require.NoError(t, h.Err())
	unlock(t, h)
}

// Scenario F4, for a store outside etcd.
func TestAFenceRefusesTokensBelowTheHighest(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	old := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	_, err := client.Delete(within(t), old.Key())
	require.NoError(t, err)
	next := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))

	var fence etcdlock.Fence
	require.ErrorIs(t, fence.Admit(0), etcdlock.ErrStale, "that is no token")
	require.NoError(t, fence.Admit(old.Token()), "nobody else has been here")
	require.NoError(t, fence.Admit(next.Token()))
	require.ErrorIs(t, fence.Admit(old.Token()), etcdlock.ErrStale)
	require.NoError(t, fence.Admit(next.Token()), "a holder may write as often as it likes")
	unlock(t, next)
	require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
}
