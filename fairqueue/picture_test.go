package fairqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// herd is a long queue: an owner and others, and behind them those of two processes by turns, who all
// wait, and have seen the whole of it together but for the first of each.
type herd struct {
	c       *embedtest.Cluster
	ahead   []*fairqueue.Ticket
	waiting []*fairqueue.Ticket
	granted []<-chan error
	whole   *spy // reads of the whole queue, but for those that are made again at the quorum
}

func newHerd(t *testing.T, waiters int) *herd {
	c := embedtest.Start(t, embedtest.WithVirtualTime())
	start := time.Now()
	queue := func() *fairqueue.Queue {
		s := open(t, c.Client(t), session.WithTTL(never), session.WithClock(func() time.Duration { return time.Since(start) }))
		return fairqueue.New(s, "q", fairqueue.WithRecheck(never))
	}
	all := &herd{c: c, ahead: joinMany(t, queue(), 70)}
	queues := []*fairqueue.Queue{queue(), queue()}
	for i := range waiters {
		all.waiting = append(all.waiting, join(t, queues[i%2], fairqueue.Exclusive))
	}
	held := c.Hold("Range")
	for i, ticket := range all.waiting {
		all.granted = append(all.granted, wait(t, within(t, patience), ticket))
		if i == 1 {
			synctest.Wait() // until these ask, each for itself
		}
	}
	synctest.Wait()
	held.Heal()
	synctest.Wait()
	all.whole = spyOnRequests(c, "Range", func(message any) bool {
		r := message.(*etcdserverpb.RangeRequest)
		return r.Serializable && len(r.RangeEnd) > 0
	})
	return all
}

// serve lets the i-th waiter go when it has been granted.
func (c *herd) serve(t *testing.T, i int) {
	require.NoError(t, result(t, c.granted[i]))
	synctest.Wait()
	for _, later := range c.granted[i+1:] {
		require.Empty(t, later)
	}
	leave(t, c.waiting[i])
}

func TestWhoHasSeenTheQueueOnceFindsItsTurnByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHerd(t, 80)
		for _, ticket := range c.ahead {
			leave(t, ticket)
		}
		for i := range c.waiting[:10] {
			c.serve(t, i)
		}
		const unaided = 4 // the first of each process, and the next, which knows of none that has owned
		require.Equal(t, unaided, c.whole.seen())
		entries := c.c.AppliedIndex()
		for i := range c.waiting[10:] {
			c.serve(t, 10+i)
		}
		require.Equal(t, unaided, c.whole.seen())
		require.EqualValues(t, 70, c.c.AppliedIndex()-entries, "the leaves, and no marks")
	})
}

// Those who give up in the middle of a queue do not make others read all of it either.
func TestWhoHasSeenTheQueueOnceFindsTheNextPredecessorByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHerd(t, 80)
		for i := 20; i < 79; i++ {
			leave(t, c.waiting[i])
			synctest.Wait()
		}
		require.Zero(t, c.whole.seen())
		for _, ticket := range c.ahead {
			leave(t, ticket)
		}
		for i := range 20 {
			c.serve(t, i)
		}
		c.serve(t, 79)
	})
}

// Promise 1: somebody removes the waiter, and its predecessor before and after.
func TestWhoHasSeenTheQueueOnceAndIsRemovedDoesNotOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHerd(t, 10)
		for _, ticket := range c.ahead {
			leave(t, ticket)
		}
		for i := range 5 {
			c.serve(t, i)
		}
		synctest.Wait()
		remove(t, c.c.Client(t), c.waiting[7].Key())
		leave(t, c.waiting[6])
		require.ErrorIs(t, result(t, c.granted[7]), fairqueue.ErrGone)
		require.Empty(t, c.granted[8])
		c.serve(t, 5)
		c.serve(t, 8)
		c.serve(t, 9)
	})
}

// An etcd whose transactions may not be as large as that is asked for the whole queue.
func TestWhoMayNotAskByNameReadsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHerd(t, 10)
		c.c.Refuse("Txn", rpctypes.ErrGRPCTooManyOps, embedtest.When(looking))
		for _, ticket := range c.ahead {
			leave(t, ticket)
		}
		for i := range c.waiting {
			c.serve(t, i)
		}
		require.Equal(t, len(c.waiting), c.whole.seen())
	})
}
