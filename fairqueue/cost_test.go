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

// cost is what etcd sees of an operation.
type cost struct {
	reads   int64 // requests that are a range
	txns    int64
	watches int // created
	events  int // delivered
	entries uint64
}

type meter struct {
	t       *testing.T
	c       *embedtest.Cluster
	watches *spy
	events  *spy
	again   map[string]*spy // looks that went to the quorum, by method
	last    cost
	asked   int
}

func newMeter(t *testing.T, c *embedtest.Cluster) *meter {
	m := &meter{t: t, c: c, watches: spyOnWatches(c), events: spyOnEvents(c), again: map[string]*spy{
		"Range": spyOnRequests(c, "Range", func(message any) bool {
			r := message.(*etcdserverpb.RangeRequest)
			// A TryJoin reads a range, and asks nothing about revisions.
			return !r.Serializable && (len(r.RangeEnd) == 0 || r.MaxCreateRevision > 0)
		}),
		"Txn": spyOnRequests(c, "Txn", func(message any) bool {
			if !looking(message) {
				return false
			}
			first := message.(*etcdserverpb.TxnRequest).Success[0].GetRequestRange()
			return !first.Serializable && len(first.RangeEnd) == 0 // a TryJoin reads no single key
		}),
	}}
	m.spent()
	return m
}

// spent returns what has been spent since the last call. etcd sends events an
// instant before the revision shows in reads; a look that comes in between is asked
// again. That is left out, but held to one for each event.
func (m *meter) spent() cost {
	m.t.Helper()
	reads, txns := m.again["Range"].seen(), m.again["Txn"].seen()
	now := cost{
		m.c.Calls("Range") - int64(reads), m.c.Calls("Txn") - int64(txns),
		m.watches.seen(), m.events.seen(), m.c.AppliedIndex(),
	}
	was := m.last
	require.LessOrEqual(m.t, reads+txns-m.asked, now.events-was.events)
	m.last, m.asked = now, reads+txns
	return cost{now.reads - was.reads, now.txns - was.txns, now.watches - was.watches, now.events - was.events, now.entries - was.entries}
}

// The table of doc.go. Renewals are left out: the sessions' TTL is an hour.
func TestCost(t *testing.T) {
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			c, client := begin(t)
			s, other := open(t, client), open(t, client)
			mine, theirs := queueAt(s, "q"), queueAt(other, "q")
			m := newMeter(t, c)
			// A shared ticket looks with one transaction, at several spans.
			look := cost{reads: 1}
			if mode == fairqueue.Shared {
				look = cost{txns: 1}
			}

			// Nothing in the way.
			ticket := join(t, mine, mode)
			require.NoError(t, ticket.Wait(within(t, patience)))
			require.Equal(t, cost{txns: 1, entries: 1}, m.spent(), "join when free")
			leave(t, ticket)
			require.Equal(t, cost{txns: 1, entries: 1}, m.spent(), "leave")

			ticket = try(t, mine, mode)
			require.NoError(t, ticket.Wait(within(t, patience)))
			require.Equal(t, cost{reads: look.reads, txns: look.txns + 1, entries: 1}, m.spent(), "try when free")
			leave(t, ticket)

			holder := hold(t, theirs, fairqueue.Exclusive)
			m.spent()
			requireBusy(t, mine, mode)
			require.Equal(t, look, m.spent(), "try when held")

			// In line, and nothing happens between join and watch.
			ticket = join(t, mine, mode)
			require.Equal(t, cost{txns: 1, entries: 1}, m.spent(), "join when held")
			granted := wait(t, within(t, patience), ticket)
			m.watches.await(t, m.last.watches+1)
			require.Equal(t, cost{watches: 1}, m.spent(), "wait")
			before := time.Now()
			leave(t, holder)
			requireGranted(t, granted)
			require.Equal(t, cost{reads: look.reads, txns: 1 + look.txns, events: 1, entries: 1}, m.spent(), "leave of the one ahead, and the look")
			leave(t, ticket)

			// Behind the same name again, within the second for which the watch is kept.
			for late := true; late; {
				holder = hold(t, theirs, fairqueue.Exclusive)
				ticket = join(t, mine, mode)
				put(t, client, "elsewhere")
				m.spent()
				granted = wait(t, within(t, patience), ticket)
				began := before
				before = time.Now()
				leave(t, holder)
				requireGranted(t, granted)
				spent := m.spent()
				leave(t, ticket)
				if late = time.Since(began) >= time.Second; !late {
					require.Equal(t, cost{reads: look.reads, txns: 1 + look.txns, events: 1, entries: 1}, spent, "wait with a watch that was kept, leave, look")
				}
			}

			// In line, and something does happen: one key is read once.
			holder = hold(t, queueAt(other, "r"), fairqueue.Exclusive)
			ticket = join(t, queueAt(s, "r"), mode)
			put(t, client, "elsewhere")
			m.spent()
			granted = wait(t, within(t, patience), ticket)
			eventually(t, "it has looked for the one ahead", func() bool { return c.Calls("Range") > m.last.reads })
			require.Equal(t, cost{reads: 1, watches: 1}, m.spent(), "wait after a change")
			leave(t, holder)
			requireGranted(t, granted)
			require.Equal(t, cost{reads: look.reads, txns: 1 + look.txns, events: 1, entries: 1}, m.spent())
			leave(t, ticket)
		})
	}
}

func TestALongQueueCostsOneLookMore(t *testing.T) {
	c, client := begin(t)
	theirs, mine := newQueue(t, client), newQueue(t, client)
	m := newMeter(t, c)
	ahead := joinMany(t, theirs, 70)
	m.spent()
	ticket := join(t, mine, fairqueue.Exclusive)
	require.Equal(t, cost{txns: 1, entries: 1}, m.spent())
	granted := standing(t, c, ticket)
	require.Equal(t, cost{reads: 1, watches: 1}, m.spent())

	last := len(ahead) - 1
	for _, other := range ahead[:last] {
		leave(t, other)
	}
	require.Equal(t, cost{txns: int64(last), entries: uint64(last)}, m.spent(), "nobody is told of what does not concern it")
	requireWaiting(t, granted)
	leave(t, ahead[last])
	requireGranted(t, granted)
	require.Equal(t, cost{reads: 1, txns: 1, events: 1, entries: 1}, m.spent())
}

// One release means one event, for one waiter.
func TestAReleaseWakesOneWaiter(t *testing.T) {
	c, client := begin(t)
	q := newQueue(t, client)
	line := []*fairqueue.Ticket{hold(t, q, fairqueue.Exclusive)}
	m := newMeter(t, c)
	waiting := []<-chan error{nil}
	for i := range 10 {
		line = append(line, join(t, q, fairqueue.Exclusive))
		waiting = append(waiting, standing(t, c, line[i+1]))
	}
	require.Equal(t, 10, m.spent().watches)
	for i, ticket := range line[:10] {
		leave(t, ticket)
		requireGranted(t, waiting[i+1])
		require.Equal(t, cost{reads: 1, txns: 1, events: 1, entries: 1}, m.spent())
		for _, later := range waiting[i+2:] {
			requireWaiting(t, later)
		}
	}
}

// Deleted names stay in etcd's index until a compaction, so they are used again.
func TestNamesAreUsedAgain(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	for range 3 {
		ticket := hold(t, q, fairqueue.Exclusive)
		require.Equal(t, nameOf(s, fairqueue.Exclusive, 0), ticket.Key())
		require.Equal(t, revisionOf(t, client, ticket.Key()), ticket.Revision())
		leave(t, ticket)
	}
	var line []*fairqueue.Ticket
	for slot := range 17 {
		line = append(line, join(t, q, fairqueue.Shared))
		require.Equal(t, nameOf(s, fairqueue.Shared, slot), line[slot].Key())
	}
	leave(t, line[5])
	require.Equal(t, nameOf(s, fairqueue.Shared, 5), join(t, q, fairqueue.Shared).Key(), "the lowest that is free")
	requireBusy(t, q, fairqueue.Exclusive)
	require.Equal(t, nameOf(s, fairqueue.Exclusive, 17), join(t, q, fairqueue.Exclusive).Key())
	// Another queue of the session counts for itself.
	require.Equal(t, "other"+nameOf(s, fairqueue.Exclusive, 0)[1:], hold(t, queueAt(s, "other"), fairqueue.Exclusive).Key())
}

// Whatever is read on behalf of a waiter may be answered by any member (invariant 2);
// a refusal must come from the quorum.
func TestAnyMemberAnswersALookAndTheQuorumARefusal(t *testing.T) {
	c, client := begin(t)
	q := newQueue(t, client)
	quorum := spyOnRequests(c, "Range", func(message any) bool { return !message.(*etcdserverpb.RangeRequest).Serializable })
	local := spyOnRequests(c, "Range", func(message any) bool { return message.(*etcdserverpb.RangeRequest).Serializable })

	holder := hold(t, q, fairqueue.Exclusive)
	requireBusy(t, q, fairqueue.Exclusive)
	require.Equal(t, 1, quorum.seen())

	ticket := join(t, q, fairqueue.Exclusive)
	granted := wait(t, within(t, patience), ticket)
	leave(t, holder)
	requireGranted(t, granted)
	require.Positive(t, local.seen())
	require.Equal(t, 1, quorum.seen())
}

// A stream that ends takes the watches with it that are kept for the next turn.
func TestWatchesThatHaveEndedWhileTheyWereKeptAreInNobodysWay(t *testing.T) {
	c, client := begin(t)
	theirs := newQueue(t, client)
	mine := queueAt(open(t, c.Client(t)), "q")
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

// A watch that has just been created is known to work; one that was kept is not.
func TestAWatchThatFallsSilentWhileItIsKeptIsNotTrustedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := embedtest.Start(t, embedtest.WithVirtualTime())
		theirs, mine := queueAt(virtual(t, c.Client(t)), "q"), queueAt(virtual(t, c.Client(t)), "q")
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

// The stream of the watch is stuck, because others send more than goes through.
func TestTheEndOfTheSessionEndsAWaitOnAStreamThatIsStuck(t *testing.T) {
	c, _ := begin(t)
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

// virtual returns a session that never ends by itself, in virtual time.
func virtual(t *testing.T, client *clientv3.Client) *session.Session {
	start := time.Now()
	return open(t, client, session.WithClock(func() time.Duration { return time.Since(start) }))
}
