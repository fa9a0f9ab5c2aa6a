package fairqueue_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// crowd runs f for every number at once, on queues of one session, while etcd holds the first
// requests back, so that what follows goes out together. It returns how many requests there were.
func crowd(t *testing.T, c *embedtest.Cluster, n int, f func(i int) error) (requests int64) {
	t.Helper()
	before := c.Calls("Txn")
	held := c.Hold("Txn", embedtest.Times(8))
	var working sync.WaitGroup
	results := make(chan error, n)
	for i := range n {
		working.Go(func() { results <- f(i) })
	}
	require.NoError(t, held.Wait(within(t, patience)))
	held.Heal()
	working.Wait()
	for range n {
		require.NoError(t, <-results)
	}
	return c.Calls("Txn") - before
}

func TestJoinsAndLeavesOfOneSessionGoOutTogether(t *testing.T) {
	t.Parallel()
	const n = 200
	c := embedtest.Start(t)
	s := open(t, c.Client(t), session.WithTTL(never))
	ctx := within(t, patience)
	tickets := make([]*fairqueue.Ticket, n)
	requests := crowd(t, c, n, func(i int) (err error) {
		tickets[i], err = fairqueue.New(s, fmt.Sprintf("q%d", i)).Join(ctx, fairqueue.Exclusive)
		return err
	})
	require.Less(t, requests, int64(n/2))
	for _, ticket := range tickets {
		require.True(t, ticket.Granted())
		require.NoError(t, ticket.Wait(ctx))
	}
	requests = crowd(t, c, n, func(i int) error { return tickets[i].Leave(ctx) })
	require.Less(t, requests, int64(n/2))
	answer, err := c.Client(t).Get(ctx, "q", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
}

// Invariant 8: tickets of one queue never have the same revision, whatever goes out together.
func TestJoinsOfOneQueueNeverTieAndAreGrantedInTurn(t *testing.T) {
	t.Parallel()
	const n = 60
	c := embedtest.Start(t)
	s := open(t, c.Client(t), session.WithTTL(never))
	ctx := within(t, patience)
	var mu sync.Mutex
	var order []int64
	holders := 0
	crowd(t, c, n, func(i int) error {
		q := fairqueue.New(s, fmt.Sprintf("q%d", i%3))
		ticket, err := q.Join(ctx, fairqueue.Exclusive)
		if err != nil {
			return err
		}
		if err := ticket.Wait(ctx); err != nil {
			return err
		}
		if i%3 == 0 {
			mu.Lock()
			order = append(order, ticket.Revision())
			holders++
			alone := holders == 1
			mu.Unlock()
			if !alone {
				return fmt.Errorf("two own q0 at a time")
			}
			mu.Lock()
			holders--
			mu.Unlock()
		}
		return ticket.Leave(ctx)
	})
	require.Len(t, order, n/3)
	require.IsIncreasing(t, order)
}

func TestTriesOfOneQueueThatGoOutTogetherHaveOneWinner(t *testing.T) {
	t.Parallel()
	const n = 40
	c := embedtest.Start(t)
	s := open(t, c.Client(t), session.WithTTL(never))
	ctx := within(t, patience)
	won := make(chan *fairqueue.Ticket, n)
	crowd(t, c, n, func(int) error {
		ticket, err := fairqueue.New(s, "q").TryJoin(ctx, fairqueue.Exclusive)
		if errors.Is(err, fairqueue.ErrBusy) {
			return nil
		}
		won <- ticket
		return err
	})
	require.Len(t, won, 1)
}

// What one may not do is no reason to refuse the others.
func TestWhoMayNotJoinDoesNotKeepOthersFromIt(t *testing.T) {
	t.Parallel()
	const n = 20
	users := embedtest.User{Name: "limited", Password: "secret", Grants: []embedtest.Grant{embedtest.ReadWrite("mine/")}}
	c := embedtest.Start(t, embedtest.WithAuth("secret", users))
	s := open(t, c.ClientAs(t, "limited"), session.WithTTL(never))
	ctx := within(t, patience)
	crowd(t, c, n, func(i int) error {
		q := fairqueue.New(s, fmt.Sprintf("mine/q%d", i))
		if i%5 == 4 {
			_, err := fairqueue.New(s, "theirs").Join(ctx, fairqueue.Exclusive)
			if !errors.Is(err, rpctypes.ErrPermissionDenied) {
				return fmt.Errorf("what is forbidden was done, or %w", err)
			}
			return nil
		}
		ticket, err := q.Join(ctx, fairqueue.Exclusive)
		if err != nil {
			return err
		}
		return ticket.Leave(ctx)
	})
}

// Who is overtaken between the read and the write of a try needs no third request to know it.
func TestATryThatComesTooLateCostsNothingMore(t *testing.T) {
	c, client := begin(t)
	s := open(t, client, session.WithTTL(never))
	held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	tried := background(t, func() error {
		_, err := fairqueue.New(s, "q").TryJoin(within(t, patience), fairqueue.Exclusive)
		return err
	})
	require.NoError(t, held.Wait(within(t, patience)))
	other := join(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	requests := c.Calls("Txn") + c.Calls("Range")
	held.Heal()
	require.ErrorIs(t, result(t, tried), fairqueue.ErrBusy)
	require.Equal(t, requests, c.Calls("Txn")+c.Calls("Range"))
	leave(t, other)
	require.Equal(t, nameOf(s, fairqueue.Exclusive, 0), hold(t, fairqueue.New(s, "q"), fairqueue.Exclusive).Key(), "the name is free")
}
