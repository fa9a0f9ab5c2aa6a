package etcdlock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func allOf(s *session.Session, names ...string) *etcdlock.Multi {
	var locks []etcdlock.Lockable
	for _, name := range names {
		locks = append(locks, etcdlock.NewMutex(s, name))
	}
	return etcdlock.NewMulti(s, locks...)
}

func TestAMultiHoldsEveryPartAtOneRevision(t *testing.T) {
	cluster, client := newCluster(t)
	s, theirs := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	h := tryLock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "a"), etcdlock.NewRWMutex(s, "b"),
		etcdlock.NewRWMutex(s, "c").RLocker(), etcdlock.NewStriped(s, "d", 3).Stripe(1)))
	require.False(t, h.Shared())
	for _, key := range keysOf(h) {
		require.Equal(t, h.Token(), createdAt(t, client, key))
	}
	for _, name := range []string{"a", "b", "c", "d/1"} {
		require.NoError(t, etcdlock.RequireHeld(h.Context(), name))
		requireBusy(t, etcdlock.NewMutex(theirs, name))
	}
	for _, name := range []string{"d", "d/0", h.Name()} {
		require.ErrorIs(t, etcdlock.RequireHeld(h.Context(), name), etcdlock.ErrNotHeld)
	}
	unlockAll(t, h, tryLock(t, etcdlock.NewRWMutex(theirs, "c").RLocker())) // that part is shared
}

func TestANameGivenTwiceIsTakenOnceAndExclusivelyIfEitherIs(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	other := etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "a").RLocker()
	writer, reader := etcdlock.NewRWMutex(s, "a"), etcdlock.NewRWMutex(s, "a").RLocker()
	for _, c := range []struct {
		locks []etcdlock.Lockable
		alone bool
	}{
		{[]etcdlock.Lockable{writer, reader}, true},
		{[]etcdlock.Lockable{reader, etcdlock.NewMutex(s, "a")}, true},
		{[]etcdlock.Lockable{writer, writer, reader, reader}, true},
		{[]etcdlock.Lockable{reader, reader}, false},
		{[]etcdlock.Lockable{writer, etcdlock.NewMutex(s, "etcdlock/a", etcdlock.AtPrefix())}, true}, // the same queue
	} {
		m := etcdlock.NewMulti(s, c.locks...)
		require.Equal(t, "a", m.Name())
		h := lock(t, m)
		require.Equal(t, 1, tickets(t, client))
		if c.alone {
			requireBusy(t, other)
		} else {
			unlock(t, tryLock(t, other))
		}
		unlock(t, h)
	}
}

func TestWithAddsToTheOptionsOfAMulti(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	j, one, two := newJournal(), newJournal(), newJournal()
	m := allOf(s, "a", "b").With(etcdlock.WithMinHold(aLongTime))
	for range 3 {
		m = m.With(etcdlock.WithHooks(j.hooks()))
	}
	withOne := m.With(etcdlock.WithHooks(one.hooks()))
	withTwo := m.With(etcdlock.WithHooks(two.hooks()), etcdlock.WithNamespace("other"), etcdlock.WithLabel("of no effect"), etcdlock.AtPrefix())
	unlock(t, lock(t, withOne))
	for _, happened := range []string{"acquired a+b", "released a+b"} {
		one.call(t, happened)
		for range 3 {
			j.call(t, happened)
		}
	}
	requireBusy(t, withTwo, "the minimum is not over")
	two.call(t, "incomplete failed with an error a+b")
	require.Empty(t, one.calls)
	require.Empty(t, two.calls)
}

func TestMoreNamesThanATransactionCarriesAreRefused(t *testing.T) {
	cluster, client := newCluster(t)
	m := manyOf(newSession(t, client), 129)
	before := cluster.AppliedIndex()
	for _, call := range bothCalls(m) {
		_, err := call(within(t))
		var typed *etcdlock.TooManyError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, etcdlock.TooManyError{Places: 129, Limit: 127}, *typed)
	}
	require.Equal(t, before, cluster.AppliedIndex())
}

// puts returns n operations.
func puts(n int) (ops []clientv3.Op) {
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("data/", i), "written"))
	}
	return ops
}

// manyOf returns a lock of n names.
func manyOf(s *session.Session, n int) *etcdlock.Multi {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("n", i))
	}
	return allOf(s, names...)
}

func TestTransactionsOfTheLargestMultiCarryAsMuchAsOthers(t *testing.T) {
	for limit, opts := range map[int][]embedtest.Option{
		128: nil,
		8:   {embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps = 8 })},
	} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			_, client := newCluster(t, opts...)
			s := newSession(t, client)
			written, missing := clientv3.Compare(clientv3.Version("data/0"), ">", 0), clientv3.Compare(clientv3.Version("data/0"), "=", 0)

			h := lock(t, manyOf(s, limit-1))
			for _, c := range []struct {
				comparisons []clientv3.Cmp
				responses   int
			}{{nil, limit}, {[]clientv3.Cmp{written}, limit}, {[]clientv3.Cmp{missing}, 0}} {
				answer, err := h.Txn(within(t)).If(c.comparisons...).Then(puts(limit)...).Commit()
				require.NoError(t, err)
				require.Equal(t, c.responses > 0, answer.Succeeded)
				require.Len(t, answer.Responses, c.responses)
			}
			_, err := h.Txn(within(t)).Then(puts(limit)...).Else(puts(limit)...).Commit()
			require.NoError(t, err, "an Else without an If needs no room")
			_, err = h.Txn(within(t)).If(written, missing).Then(puts(1)...).Commit()
			require.ErrorIs(t, err, rpctypes.ErrTooManyOps)
			require.ErrorContains(t, err, fmt.Sprintf("%d comparisons guard the lock", limit-1))
			unlock(t, h)

			h = lock(t, manyOf(s, limit/2))
			answer, err := h.Txn(within(t)).If(missing).Then(puts(1)...).Else(puts(limit / 2)...).Commit()
			require.NoError(t, err)
			require.False(t, answer.Succeeded)
			require.Len(t, answer.Responses, limit/2)
			unlock(t, h)
		})
	}
}

// Whichever part is gone, whatever the comparisons.
func TestATransactionOfAMultiThatLacksAPartTakesNoEffect(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	holds, fails := clientv3.Compare(clientv3.Version("data/0"), "=", 0), clientv3.Compare(clientv3.Version("data/0"), "=", 7)
	for i, prepare := range []func(clientv3.Txn) clientv3.Txn{
		func(txn clientv3.Txn) clientv3.Txn { return txn },
		func(txn clientv3.Txn) clientv3.Txn { return txn.Then(puts(1)...) },
		func(txn clientv3.Txn) clientv3.Txn { return txn.If(holds).Then(puts(1)...) },
		func(txn clientv3.Txn) clientv3.Txn { return txn.If(fails).Then(puts(1)...) },
		func(txn clientv3.Txn) clientv3.Txn { return txn.If(holds).Then(puts(1)...).Else(puts(1)...) },
		func(txn clientv3.Txn) clientv3.Txn { return txn.If(fails).Then(puts(1)...).Else(puts(1)...) },
		func(txn clientv3.Txn) clientv3.Txn { return txn.Else(puts(1)...) },
	} {
		h := lock(t, manyOf(s, 3))
		guards := h.Guards()
		gone := string(guards[i%3].KeyBytes())
		remove(t, client, gone)
		_, err := prepare(h.Txn(within(t))).Commit()
		require.ErrorIs(t, err, etcdlock.ErrLost)
		require.ErrorContains(t, err, gone)
		require.Error(t, h.Err())
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		awaitTickets(t, client, 0)
	}
	require.Empty(t, keysAt(t, client, "data/"))
}

// An interceptor of the client may wrap what etcd says.
func TestALowerLimitIsRecognizedBehindAnInterceptor(t *testing.T) {
	cluster, _ := newCluster(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps = 8 }))
	wrap := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if err := invoke(ctx, method, request, reply, conn, opts...); err != nil {
			return fmt.Errorf("traced: %w", err)
		}
		return nil
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(wrap)}})
	require.NoError(t, err)
	defer client.Close()
	s := newSession(t, client)
	var readers []etcdlock.Lockable
	for i := range 7 {
		readers = append(readers, etcdlock.NewRWMutex(s, fmt.Sprint("r", i)).RLocker())
	}
	for _, m := range []*etcdlock.Multi{manyOf(s, 7), etcdlock.NewMulti(s, readers...)} {
		unlock(t, tryLock(t, m))
		h := lock(t, m)
		_, err := h.Txn(within(t)).If(clientv3.Compare(clientv3.Version("a"), "=", 0), clientv3.Compare(clientv3.Version("b"), "=", 0)).Then(puts(1)...).Commit()
		require.ErrorContains(t, err, "7 comparisons guard the lock")
		require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
		unlock(t, h)
	}
}
