package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

func TestAheadTellsWhoOwnsAndHowManyStandBefore(t *testing.T) {
	_, client := begin(t)
	owner := hold(t, fairqueue.New(open(t, client), "q", fairqueue.WithLabel("owner")), fairqueue.Exclusive)
	q := fairqueue.New(open(t, client), "q")
	second, third := join(t, q, fairqueue.Exclusive), join(t, q, fairqueue.Shared)
	put(t, client, "q/nested/1")
	join(t, q, fairqueue.Exclusive) // behind

	e, ahead, ok := third.Ahead(within(t, patience))
	require.True(t, ok)
	require.Equal(t, 2, ahead)
	require.Equal(t, owner.Key(), e.Key)
	require.Equal(t, "owner", e.Owner.Label)

	leave(t, third) // asked when its wait is over
	leave(t, owner)
	e, ahead, ok = third.Ahead(within(t, patience))
	require.True(t, ok)
	require.Equal(t, 1, ahead)
	require.Equal(t, second.Key(), e.Key)
	leave(t, second)
	_, _, ok = third.Ahead(within(t, patience))
	require.False(t, ok, "free by now")
}

func TestAheadOfAGroupIsThatOfTheFirstQueueThatIsTaken(t *testing.T) {
	_, client := begin(t)
	s, other := open(t, client), open(t, client)
	owner := hold(t, places(other, 3)[1].Queue, fairqueue.Exclusive)
	g := joinAll(t, s, places(s, 3)...)
	e, ahead, ok := g.Ahead(within(t, patience))
	require.True(t, ok)
	require.Equal(t, 1, ahead)
	require.Equal(t, owner.Key(), e.Key)
	leave(t, owner)
	_, _, ok = g.Ahead(within(t, patience))
	require.False(t, ok)
}

// Candidates may have values of a megabyte, and thousands of waiters may time out together.
func TestAheadReadsTheValueOfTheOwnerOnly(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client), "q")
	owner := joinCandidate(t, q, "the owner's", 0)
	for range 5 {
		joinCandidate(t, q, "a waiter's", 0)
	}
	last := join(t, q, fairqueue.Exclusive)
	values := spyOnRequests(c, "Range", func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && !r.KeysOnly && len(r.RangeEnd) > 0
	})
	e, ahead, ok := last.Ahead(within(t, patience))
	require.True(t, ok)
	require.Equal(t, 6, ahead)
	require.Equal(t, owner.Key(), e.Key)
	require.Equal(t, owner.Session().Lease(), e.Lease)
	require.Equal(t, "the owner's", string(e.Value))
	require.Zero(t, values.seen(), "reads of all values")
}

// The owner may leave between the two reads.
func TestAheadTellsOfOneMoment(t *testing.T) {
	c, client := begin(t)
	owner := hold(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	last := join(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	read := c.Hold("Range", embedtest.Once(), embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && string(r.Key) == owner.Key()
	}))
	asked := background(t, func() error {
		e, ahead, ok := last.Ahead(within(t, patience))
		if !ok || ahead != 1 || e.Key != owner.Key() {
			return fmt.Errorf("%q, %d, %v", e.Key, ahead, ok)
		}
		return nil
	})
	require.NoError(t, read.Wait(within(t, patience)))
	leave(t, owner)
	read.Heal()
	require.NoError(t, result(t, asked))
}

// Nor does it keep anybody waiting.
func TestAheadDoesNotTellWhatItCannot(t *testing.T) {
	c, client, q := beginQueue(t)
	hold(t, q, fairqueue.Exclusive)
	ticket := join(t, q, fairqueue.Exclusive)
	fault := c.LoseRequest("Range")
	ctx, cancel := context.WithCancel(within(t, patience))
	asked := background(t, func() error {
		if _, _, ok := ticket.Ahead(ctx); ok {
			return errors.New("out of nothing")
		}
		return nil
	})
	require.NoError(t, fault.Wait(within(t, patience)))
	cancel()
	require.NoError(t, result(t, asked))
	fault.Heal()
	for i := range 9 {
		putMany(t, client, "q/"+string(rune('a'+i))) // of other queues, but they are read
	}
	_, _, ok := ticket.Ahead(within(t, patience))
	require.False(t, ok, "too long")
}
