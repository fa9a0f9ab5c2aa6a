package fairqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// Programs of earlier versions may have recorded the largest size ever behind the size.
func TestASizeIsReadWhateverTheLargestWas(t *testing.T) {
	_, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.WithRecheck(20*time.Millisecond))
	put(t, client, "q/!size/1-3")
	first := holdPermits(t, q, 1, 1)
	second := joinPermits(t, q, 1, 1)
	waiting := wait(t, within(t, patience), second)
	resize(t, q, 2)
	requireGranted(t, waiting)
	require.Contains(t, keysUnder(t, client, "q"), "q/!size/2-2")
	leave(t, first)
	leave(t, second)
}

func TestASlotIsFoundAfterAResize(t *testing.T) {
	_, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.WithSlots())
	one, late := holdPermits(t, q, 1, 2), joinPermits(t, q, 1, 2)
	require.Zero(t, one.Slot())
	require.Zero(t, late.Revision(), "a permit fences nothing")
	require.Equal(t, -1, late.Slot())
	resize(t, q, 4)
	two := holdPermits(t, q, 1, 4)
	require.Equal(t, 1, two.Slot())
	require.NoError(t, late.Wait(within(t, patience)), "it was granted when there were two")
	require.Equal(t, 2, late.Slot())
	for _, ticket := range []*fairqueue.Ticket{one, two, late} {
		require.Len(t, ticket.Guards(), 2)
		require.Equal(t, ticket.Revision(), revisionOf(t, client, ticket.Key()))
		leave(t, ticket)
	}
	require.Empty(t, ticketsUnder(t, client, "q"))
	require.Empty(t, keysUnder(t, client, "q!"))
}

func TestTheSizeOfAQueueThatNobodyUsesCanBeForgotten(t *testing.T) {
	_, client, q := beginQueue(t)
	ticket := holdPermits(t, q, 1, 3)
	require.ErrorIs(t, q.Forget(within(t, patience)), fairqueue.ErrBusy)
	leave(t, ticket)
	require.NoError(t, q.Forget(within(t, patience)))
	require.Empty(t, keysUnder(t, client, ""))
	require.NoError(t, q.Forget(within(t, patience)), "there is nothing to forget")
	leave(t, holdPermits(t, q, 1, 5))
}

func TestMorePermitsThanThereCanBeWriteNothing(t *testing.T) {
	_, client, q := beginQueue(t)
	leave(t, holdPermits(t, q, 1, 3))
	before := storeRevision(t, client)
	_, err := q.JoinPermits(within(t, patience), 4, 3)
	requireSizeError(t, err, fairqueue.SizeError{Asked: 4, Agreed: 3, Weight: true})
	require.Equal(t, before, storeRevision(t, client))
	resize(t, q, 4)
	leave(t, holdPermits(t, q, 4, 3))
}

// R1
func TestAnotherSizeIsNoticedAfterALostReply(t *testing.T) {
	c, client, q := beginQueue(t)
	leave(t, holdPermits(t, q, 1, 3))
	theirs, link := c.Link(t)
	other := fairqueue.New(open(t, theirs), "q")
	retried(t, c.LoseReply("Txn", embedtest.Once()), reset(link), func(ctx context.Context) error {
		_, err := other.JoinPermits(ctx, 1, 2)
		requireSizeError(t, err, fairqueue.SizeError{Asked: 2, Agreed: 3})
		return nil
	})
	eventually(t, "no ticket is left", func() bool { return len(ticketsUnder(t, client, "q")) == 0 })
}

// Promise 11, for a waiter that is several.
func TestAGroupThatHasLostAPartDoesNotWaitForTheRest(t *testing.T) {
	for name, want := range map[string]int{"all": 3, "any": 2} {
		t.Run(name, func(t *testing.T) {
			_, client := begin(t)
			s := open(t, client)
			queues := make([]fairqueue.Place, 3)
			for i := range queues {
				q := fairqueue.New(s, fmt.Sprint("q/", i), fairqueue.WithRecheck(20*time.Millisecond))
				queues[i] = fairqueue.Place{Queue: q, Mode: fairqueue.Exclusive}
			}
			before, err := fairqueue.JoinAll(within(t, patience), s, queues[1:]...)
			require.NoError(t, err)
			g := joinAny(t, s, want, queues...)
			waiting := wait(t, within(t, patience), g)
			remove(t, client, g.Key()) // the first, which is granted
			require.ErrorIs(t, result(t, waiting), fairqueue.ErrGone)
			leave(t, before)
			eventuallyEmpty(t, client, "q")
		})
	}
}

// As the cost table says.
func TestManyPlacesCostAReadOrTwoMore(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	s := open(t, c.Client(t))
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		places := make([]fairqueue.Place, 127)
		for i := range places {
			places[i] = fairqueue.Place{Queue: fairqueue.New(s, fmt.Sprint(mode, i)), Mode: mode}
		}
		requests := spyOnRequests(c, "Txn", func(message any) bool { _, is := message.(*etcdserverpb.TxnRequest); return is })
		g, err := fairqueue.JoinAll(within(t, patience), s, places...)
		require.NoError(t, err)
		require.True(t, g.Granted())
		require.NoError(t, g.Wait(within(t, patience)))
		most := map[fairqueue.Mode]int{fairqueue.Exclusive: 2, fairqueue.Shared: 5}[mode]
		require.LessOrEqual(t, requests.seen(), most, "%v", mode)
		leave(t, g)
	}
}
