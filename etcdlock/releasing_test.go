package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Scenario R1.
func TestALostReplyToTheJoinLeavesOneTicket(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	fault := cluster.LoseReply("Txn", embedtest.Once())
	h := lock(t, m)
	require.Equal(t, 1, fault.Bites())
	require.Equal(t, 1, tickets(t, cluster.Client(t)))
	unlock(t, h)
	require.Zero(t, tickets(t, cluster.Client(t)))
}

// Scenario R1: the caller gives up before the retry, and the key exists.
func TestAGhostOfAnAbandonedLockIsRemoved(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	fault := cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(creates))
	ctx, cancel := context.WithCancel(within(t))
	locked := locking(ctx, etcdlock.NewMutex(s, "orders"))
	require.NoError(t, fault.Wait(within(t)))
	require.Equal(t, 1, tickets(t, cluster.Client(t)), "it was applied")
	cancel()
	require.ErrorIs(t, await(t, "the lock to give up", locked).err, context.Canceled)

	unlock(t, lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")))
	awaitTickets(t, cluster.Client(t), 0)
	require.NoError(t, s.Err())
}

// creates tells the transaction of a join from those that remove tickets.
func creates(message any) bool {
	for _, op := range message.(*etcdserverpb.TxnRequest).GetSuccess() {
		if op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

// Scenario R2.
func TestUnlockWithACancelledContextReleases(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	h := lock(t, m)
	require.NoError(t, h.Unlock(cancelled()))
	require.Zero(t, tickets(t, cluster.Client(t)))
}

// Scenario R2: etcd does not answer while the caller waits.
func TestAnUnconfirmedUnlockGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	silence := cluster.LoseRequest("Txn")
	err := h.Unlock(cancelled())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "orders")
	require.NoError(t, h.Unlock(within(t)), "the second call does nothing")
	silence.Heal()
	unlock(t, lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")))
	require.NoError(t, s.Err(), "it was not the end of the session that released")
}

func TestTheSecondUnlockDoesNothing(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	first := lock(t, m)
	unlock(t, first)
	second := lock(t, m)
	require.Equal(t, first.Key(), second.Key(), "so a delete by name would hit it")
	require.NoError(t, first.Unlock(within(t)))
	require.Equal(t, 1, tickets(t, cluster.Client(t)))
	require.NoError(t, second.Err())
	unlock(t, second)
}

// Scenarios R6 and R10.
func TestUnlockAfterALossSaysSoAndLeavesTheNextOwnerAlone(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	defer func() { require.NoError(t, keeper.Close(context.Background())) }()
	m := etcdlock.NewMutex(keeper, "orders")
	old := lock(t, m)
	_, err := cluster.Client(t).Delete(within(t), old.Key())
	require.NoError(t, err)
	next := lock(t, m)
	require.Equal(t, "etcdlock/orders/", next.Key()[:len("etcdlock/orders/")])

	require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
	answer, err := cluster.Client(t).Get(within(t), next.Key())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	require.EqualValues(t, next.Token(), answer.Kvs[0].CreateRevision)
	require.NoError(t, next.Err())
	unlock(t, next)
}

// Scenario R6: that the hold was lost is the news, whatever becomes of the release.
func TestUnlockAfterALossSaysSoEvenIfEtcdIsSilent(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, client), "orders"))
	_, err := client.Delete(within(t), h.Key())
	require.NoError(t, err)
	_, err = h.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	silence := cluster.LoseRequest("Txn")
	defer silence.Heal()
	require.ErrorIs(t, h.Unlock(cancelled()), etcdlock.ErrLost)
}

// Scenario R4.
func TestARefusedTryLockWritesNothing(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	other := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	before := cluster.AppliedIndex()
	for range 10 {
		_, err := other.TryLock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrBusy)
	}
	require.Equal(t, before, cluster.AppliedIndex())
	unlock(t, h)
	got, err := other.TryLock(within(t))
	require.NoError(t, err)
	unlock(t, got)
}

// Scenario R12.
func TestTooManyRequestsAreTriedAgain(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	fault := cluster.Refuse("Txn", rpctypes.ErrTooManyRequests, embedtest.Times(4))
	unlock(t, lock(t, m))
	require.Equal(t, 4, fault.Bites())
}

// Scenario W6, at the level of the lock.
func TestCancelledWaiterLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	awaitTickets(t, cluster.Client(t), 2)
	cancel()
	r := await(t, "the waiter", waiting)
	require.ErrorIs(t, r.err, context.Canceled)
	require.Nil(t, r.hold)
	awaitTickets(t, cluster.Client(t), 1)
	unlock(t, h)
}

// Scenario W7 and R8: no member can be reached.
func TestCallsReturnWithTheirContextWhenEtcdIsSilent(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	link.Blackhole()
	for name, call := range map[string]func(context.Context) (*etcdlock.Hold, error){"Lock": m.Lock, "TryLock": m.TryLock} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		returned := make(chan error, 1)
		go func() {
			_, err := call(ctx)
			returned <- err
		}()
		require.ErrorIs(t, await(t, name, returned), context.DeadlineExceeded)
		cancel()
	}
}

// Scenario R9: after everything above, neither tickets nor leases nor goroutines are
// left; goleak looks after the last.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	leases := func() []clientv3.LeaseStatus {
		answer, err := client.Leases(within(t))
		require.NoError(t, err)
		return answer.Leases
	}
	require.Empty(t, leases())
	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	m := etcdlock.NewMutex(keeper, "orders")

	held := lock(t, m)
	_, err := m.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	_, err = m.Lock(cancelled())
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, m)
	awaitTickets(t, client, 2)
	cancel()
	require.ErrorIs(t, await(t, "the waiter", waiting).err, context.Canceled)
	_, err = client.Delete(within(t), held.Key())
	require.NoError(t, err)
	require.ErrorIs(t, held.Unlock(within(t)), etcdlock.ErrLost)
	fault := cluster.LoseReply("Txn", embedtest.Once())
	unlock(t, lock(t, m))
	require.Equal(t, 1, fault.Bites())

	awaitTickets(t, client, 0)
	require.NoError(t, keeper.Close(within(t)))
	require.Empty(t, leases())
}

// Promise 10: of three endpoints one swallows packets, and for one of the waiters it is the
// one that serves its watch. That one has to wait until it looks without being told.
func TestABlackHoledEndpointDoesNotStopAWaiter(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithSize(3))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	holder := newSession(t, cluster.Client(t))
	var holds []*etcdlock.Hold
	var waiting []<-chan result
	for i, member := range cluster.Members() {
		client, link := cluster.Link(t)
		name := member.Name()
		holds = append(holds, lock(t, etcdlock.NewMutex(holder, name)))
		waiting = append(waiting, locking(ctx, etcdlock.NewMutex(newSession(t, client), name)))
		awaitTickets(t, cluster.Client(t), 2*(i+1))
		link.Blackhole(member)
	}
	for i := range holds {
		unlock(t, holds[i])
	}
	for i := range waiting {
		r := <-waiting[i]
		require.NoError(t, r.err)
		require.NoError(t, r.hold.Err())
	}
}
