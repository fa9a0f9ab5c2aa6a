package fairqueue_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// W4: a stream that ends takes the watches with it that are kept for the next turn.
func TestWatchesThatHaveEndedWhileTheyWereKeptAreInNobodysWay(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	theirs := fairqueue.New(open(t, c.Client(t), session.WithTTL(never)), "q")
	mine := fairqueue.New(open(t, c.Client(t), session.WithTTL(never)), "q", fairqueue.WithRecheck(never))
	writer := hold(t, theirs, fairqueue.Exclusive)
	var readers []*fairqueue.Ticket
	var granted []<-chan error
	watches := spyOnWatches(c)
	for i := range 5 { // whose watches of the writer are all kept
		readers = append(readers, join(t, mine, fairqueue.Shared))
		granted = append(granted, wait(t, within(t, patience), readers[i]))
	}
	watches.await(t, len(readers))
	leave(t, writer)
	for i, reader := range readers {
		requireGranted(t, granted[i])
		leave(t, reader)
	}
	writer = hold(t, theirs, fairqueue.Exclusive)
	fault := c.Refuse("Watch", rpctypes.ErrNoLeader, embedtest.Once())
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	defer cancel()
	// Ends the stream of all.
	ended := readers[0].Session().Client().Watch(ctx, "elsewhere")
	for range ended { // until it is closed
	}
	require.Equal(t, 1, fault.Bites())

	stood, reader := watches.seen(), join(t, mine, fairqueue.Shared)
	requests := c.Calls("Range") + c.Calls("Txn")
	waiting := wait(t, within(t, patience), reader)
	watches.await(t, stood+1)
	require.Equal(t, requests, c.Calls("Range")+c.Calls("Txn"), "no looks while nobody watches")
	leave(t, writer)
	requireGranted(t, waiting)
}

// W5: a watch that has just been created is known to work; one that was kept is not.
func TestAWatchThatFallsSilentWhileItIsKeptIsNotTrustedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := embedtest.Start(t, embedtest.WithVirtualTime())
		theirs, mine := virtual(t, c), virtual(t, c)
		for _, silent := range []bool{false, true} {
			holder := hold(t, theirs, fairqueue.Exclusive)
			ticket := join(t, mine, fairqueue.Exclusive)
			waiting := wait(t, within(t, patience), ticket)
			synctest.Wait()
			if silent {
				c.LoseReply("Watch", embedtest.When(func(message any) bool {
					return len(message.(*etcdserverpb.WatchResponse).Events) > 0
				}), embedtest.Once())
			}
			began := time.Now()
			leave(t, holder)
			require.NoError(t, result(t, waiting))
			require.Equal(t, silent, time.Since(began) > time.Second)
			require.Less(t, time.Since(began), 8*time.Second, "virtual")
			leave(t, ticket)
		}
	})
}

// Promise 11: also if the stream of the watch is stuck, because others send more than goes through.
func TestTheEndOfTheSessionEndsAWaitOnAStreamThatIsStuck(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	theirs, link := c.Link(t)
	p := stand(t, c, theirs, never)
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	defer cancel()
	others := make([]context.CancelFunc, 100)
	for i := range others {
		var other context.Context
		other, others[i] = context.WithCancel(ctx)
		<-theirs.Watch(other, "elsewhere", clientv3.WithCreatedNotify())
	}
	link.Blackhole()
	go func() { theirs.Watch(ctx, strings.Repeat("k", 200<<10)) }() // more than a stream may send without an answer
	eventually(t, "it is stuck", func() bool {
		if len(others) > 0 {
			others[0]() // sends something, and is stuck if the large one has been sent
			others = others[1:]
		}
		stacks := make([]byte, 4<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "(*watchGRPCStream).run(") && strings.Contains(stack, "(*writeQuota).get(") {
				return true
			}
		}
		return false
	})
	over, end := context.WithCancel(context.Background())
	end()
	go func() { _ = p.waiter.Session().Close(over) }()
	require.ErrorIs(t, result(t, p.waiting), session.ErrClosed)
	link.Heal()
}

// virtual returns the queue with a session that never ends by itself, in virtual time.
func virtual(t *testing.T, c *embedtest.Cluster) *fairqueue.Queue {
	start := time.Now()
	s := open(t, c.Client(t), session.WithTTL(never), session.WithClock(func() time.Duration { return time.Since(start) }))
	return fairqueue.New(s, "q", fairqueue.WithRecheck(never))
}
