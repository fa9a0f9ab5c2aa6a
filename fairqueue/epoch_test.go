package fairqueue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// A user that may use the queue's prefix only is refused the epoch beside it. Calls that come at the same time find
// that out together.
func TestCallsThatAreRefusedTheSameEpochUseTheNext(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithAuth("root", embedtest.User{
		Name: "u", Password: "u", Grants: []embedtest.Grant{embedtest.ReadWrite("locks/q/")},
	}))
	s := open(t, c.ClientAs(t, "u"))
	q := fairqueue.New(s, "locks/q")
	held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	first := calling(t, func() (any, error) { return q.Join(within(t, patience), fairqueue.Exclusive) })
	<-held.Bitten()
	_, err := q.Join(within(t, patience), fairqueue.Exclusive)
	require.NoError(t, err)
	held.Heal()
	require.NoError(t, result(t, first))
}

// One transaction is in one epoch, however many folders its queues are in.
func TestAGroupNeedsOneEpoch(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	s := open(t, c.Client(t))
	places := make([]fairqueue.Place, 127)
	for i := range places {
		places[i] = fairqueue.Place{Queue: fairqueue.New(s, fmt.Sprintf("orders/%d/lock", i)), Mode: fairqueue.Exclusive}
	}
	g, err := fairqueue.JoinAll(within(t, patience), s, places...)
	require.NoError(t, err)
	require.True(t, g.Granted())
	leave(t, g)

	held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	ctx, cancel := context.WithCancel(within(t, patience))
	waiting := calling(t, func() (any, error) { return fairqueue.JoinAll(ctx, s, places...) })
	<-held.Bitten()
	cancel()
	require.ErrorIs(t, result(t, waiting), context.Canceled)
	eventually(t, "the epoch of the first has begun", func() bool {
		return revisionOf(t, c.Client(t), fmt.Sprintf("orders/0/!/epoch/%x", s.Lease())) > 0
	})
	held.Heal()
	g, err = fairqueue.TryAny(within(t, patience), s, len(places), places...)
	require.NoError(t, err)
	leave(t, g)
}
