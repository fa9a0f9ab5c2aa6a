package etcdlock_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func inspect(t *testing.T, client *clientv3.Client, name string, opts ...etcdlock.Option) etcdlock.Queue {
	t.Helper()
	q, err := etcdlock.Inspect(within(t), client, name, opts...)
	require.NoError(t, err)
	return q
}

func force(t *testing.T, client *clientv3.Client, key string, token etcdlock.Token) {
	t.Helper()
	require.NoError(t, etcdlock.ForceRelease(within(t), client, key, token))
}

func TestInspectShowsHoldersAndWaitersInOrder(t *testing.T) {
	q := newLine(t)
	empty := inspect(t, q.client, "orders")
	require.Equal(t, etcdlock.Queue{Name: "orders", Prefix: "etcdlock/orders/"}, empty)

	short := newSession(t, q.cluster.Client(t), session.WithTTL(time.Minute))
	labelled := etcdlock.NewRWMutex(short, "orders", etcdlock.WithLabel("report")).RLocker()
	one, two := lock(t, labelled), lock(t, q.mine.RLocker())
	writer := queued(t, q.client, q.theirs, 2)
	reader := queued(t, q.client, q.mine.RLocker(), 3)
	_, err := q.client.Put(within(t), "etcdlock/orders/694d", "somebody else's")
	require.NoError(t, err)

	seen := inspect(t, q.client, "orders")
	require.Equal(t, 2, seen.Holding)
	require.Zero(t, seen.Size)
	var kinds []string
	var last etcdlock.Token
	for i, p := range seen.Places {
		kinds = append(kinds, p.Kind)
		require.Equal(t, i < 2, p.Holding)
		require.Greater(t, p.Token, last)
		last = p.Token
	}
	require.Equal(t, []string{"shared", "shared", "exclusive", "shared", "exclusive"}, kinds)
	first := seen.Places[0]
	require.Equal(t, one.Key(), first.Key)
	require.Equal(t, one.Token(), first.Token)
	require.Equal(t, "report", first.Owner.Label)
	require.Equal(t, os.Getpid(), first.Owner.PID)
	require.WithinDuration(t, time.Now(), first.Owner.Since, patience)
	require.Equal(t, short.Lease(), first.Lease)
	require.LessOrEqual(t, first.TTL, time.Minute)
	require.Positive(t, first.TTL)
	require.Greater(t, seen.Places[1].TTL, time.Minute, "that of another session")
	foreign := seen.Places[4]
	require.Equal(t, "somebody else's", foreign.Value)
	require.Zero(t, foreign.Owner)
	require.Zero(t, foreign.Lease)
	require.Zero(t, foreign.TTL)

	unlockAll(t, one, two)
	unlock(t, granted(t, writer))
	unlock(t, granted(t, reader))
}

// Some answers are there before the last place is reached: more leases than are asked about at
// a time, each with a place early in line and one late.
func TestInspectTellsTheTTLOfEveryPlaceOfALease(t *testing.T) {
	_, client := newCluster(t)
	var leases []clientv3.LeaseID
	for range 20 {
		lease, err := client.Grant(within(t), 600)
		require.NoError(t, err)
		leases = append(leases, lease.ID)
	}
	for i := range 2 * len(leases) {
		lease := leases[i%len(leases)]
		_, err := client.Put(within(t), fmt.Sprintf("etcdlock/orders/%x", i), "", clientv3.WithLease(lease))
		require.NoError(t, err)
	}
	seen := inspect(t, client, "orders")
	require.Len(t, seen.Places, 2*len(leases))
	for i, p := range seen.Places {
		require.Equal(t, leases[i%len(leases)], p.Lease)
		require.Positive(t, p.TTL, "place %d", i)
	}
}

func TestInspectAsksAgainForATTLAndDoesWithoutThoseThatAreNotTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		of := func(s *session.Session) embedtest.FaultOption {
			return embedtest.When(func(message any) bool {
				r, ok := message.(*etcdserverpb.LeaseTimeToLiveRequest)
				return ok && r.ID == int64(s.Lease())
			})
		}
		once, never := virtualSession(t, client), virtualSession(t, client)
		one := lock(t, etcdlock.NewRWMutex(once, "orders").RLocker())
		two := lock(t, etcdlock.NewRWMutex(never, "orders").RLocker())
		cluster.LoseReply("LeaseTimeToLive", of(once), embedtest.Once())
		defer cluster.LoseReply("LeaseTimeToLive", of(never)).Heal()

		ctx := within(t)
		seen, err := etcdlock.Inspect(ctx, client, "orders")
		require.NoError(t, err)
		require.NoError(t, ctx.Err(), "the context is not used up")
		require.Len(t, seen.Places, 2)
		require.Positive(t, seen.Places[0].TTL)
		require.Zero(t, seen.Places[1].TTL)
		unlockAll(t, one, two)
	})
}

// What a lock is made with can be given as it is, of whatever kind it is.
func TestInspectTakesTheOptionsOfEveryKind(t *testing.T) {
	_, client := newCluster(t)
	always := func(context.Context) error { return nil }
	for _, options := range [][]etcdlock.Option{
		{etcdlock.WithSlots()},
		{etcdlock.WithPriority(1), etcdlock.WithHealthCheck(time.Second, always)},
		{etcdlock.WithLocalHandover(time.Second, 2), etcdlock.WithRetention(time.Second)},
		{etcdlock.WithMinHold(time.Second), etcdlock.WithLabel("mine"), etcdlock.WithHooks(&etcdlock.Hooks{})},
	} {
		q := inspect(t, client, "orders", append(options, etcdlock.WithNamespace("shop"))...)
		require.Equal(t, "shop/orders/", q.Prefix)
	}
	_, err := etcdlock.Inspect(within(t), client, "")
	require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	_, err = etcdlock.Inspect(cancelled(), client, "a")
	require.Error(t, err)
}

func TestInspectKnowsSizesAndWeights(t *testing.T) {
	p := newPool(t, 5)
	acquire(t, p.Semaphore, 1)
	acquire(t, p.Semaphore, 3)
	other, s := p.other(t)
	p.wait(t, other, 2, 2)
	p.wait(t, p.Semaphore, 1, 3)
	seen := inspect(t, p.client, "pool")
	require.EqualValues(t, 5, seen.Size)
	require.Equal(t, 2, seen.Holding)
	var weights []int64
	for _, place := range seen.Places {
		require.Equal(t, "permit", place.Kind)
		weights = append(weights, place.Weight)
	}
	require.Equal(t, []int64{1, 3, 2, 1}, weights)
	// After a reduction, a holder from before cannot be told from a waiter.
	require.NoError(t, p.Resize(within(t), 3))
	require.Equal(t, 1, inspect(t, p.client, "pool").Holding)

	large := etcdlock.NewSemaphore(s, "large", math.MaxInt64)
	acquire(t, large, 7)
	acquire(t, large, math.MaxInt64-7)
	locking(within(t), weighted{large, 5})
	require.Eventually(t, func() bool { return len(inspect(t, p.client, "large").Places) == 3 }, patience, waitABit)
	require.Equal(t, 2, inspect(t, p.client, "large").Holding, "weights add up, whatever their size")
}

func TestForceReleaseLetsTheNextInAndNothingElse(t *testing.T) {
	q := newLine(t)
	stuck := lock(t, q.mine)
	waiting := queued(t, q.client, q.theirs, 1)
	for _, token := range []etcdlock.Token{0, stuck.Token() - 1, stuck.Token() + 1} {
		require.ErrorIs(t, etcdlock.ForceRelease(within(t), q.client, stuck.Key(), token), etcdlock.ErrStale)
	}
	require.ErrorIs(t, etcdlock.ForceRelease(within(t), q.client, "etcdlock/orders/none", 0), etcdlock.ErrStale)
	requireWaiting(t, waiting)
	seen := inspect(t, q.client, "orders")
	force(t, q.client, seen.Places[0].Key, seen.Places[0].Token)
	next := granted(t, waiting)
	_, err := stuck.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	requireLost(t, stuck)

	err = etcdlock.ForceRelease(within(t), q.client, stuck.Key(), stuck.Token())
	require.ErrorIs(t, err, etcdlock.ErrStale, "once is enough")
	require.NoError(t, next.Err())
	unlock(t, next)
}

// The attempt that removed it was not answered, and the next one finds nothing.
func TestAForceReleaseWhoseReplyWasLostIsOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		stuck := lock(t, etcdlock.NewMutex(virtualSession(t, client), "orders"))
		cluster.LoseReply("Txn", embedtest.Once())
		force(t, client, stuck.Key(), stuck.Token())
		require.Zero(t, tickets(t, client))
		require.ErrorIs(t, stuck.Unlock(within(t)), etcdlock.ErrLost)
	})
}
