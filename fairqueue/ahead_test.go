package fairqueue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

func TestAheadTellsWhoOwnsAndHowManyStandBefore(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
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
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
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

// Nor does it keep anybody waiting.
func TestAheadDoesNotTellWhatItCannot(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	q := fairqueue.New(open(t, client), "q")
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
