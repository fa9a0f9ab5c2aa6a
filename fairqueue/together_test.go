package fairqueue_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
