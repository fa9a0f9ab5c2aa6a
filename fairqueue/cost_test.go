package fairqueue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

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
			mine := fairqueue.New(open(t, client, session.WithTTL(never)), "q", fairqueue.WithRecheck(never))
			theirs := fairqueue.New(open(t, client, session.WithTTL(never)), "q", fairqueue.WithRecheck(never))
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

			// R4
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
			leave(t, holder)
			requireGranted(t, granted)
			require.Equal(t, cost{reads: look.reads, txns: 1 + look.txns, events: 1, entries: 1}, m.spent(), "leave of the one ahead, and the look")
			leave(t, ticket)

			// Behind the same name again: the watch has been kept.
			holder = hold(t, theirs, fairqueue.Exclusive)
			ticket = join(t, mine, mode)
			put(t, client, "elsewhere")
			m.spent()
			granted = wait(t, within(t, patience), ticket)
			leave(t, holder)
			requireGranted(t, granted)
			require.Equal(t, cost{reads: look.reads, txns: 1 + look.txns, events: 1, entries: 1}, m.spent(), "wait with a watch that was kept, leave, look")
			leave(t, ticket)

			// In line, and something does happen: one key is read once.
			holder = hold(t, theirs.At("r"), fairqueue.Exclusive)
			ticket = join(t, mine.At("r"), mode)
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
	theirs := fairqueue.New(open(t, client, session.WithTTL(never)), "q")
	mine := fairqueue.New(open(t, client, session.WithTTL(never)), "q", fairqueue.WithRecheck(never))
	m := newMeter(t, c)

	var ahead []*fairqueue.Ticket
	for range 70 {
		ahead = append(ahead, join(t, theirs, fairqueue.Exclusive))
	}
	m.spent()
	ticket := join(t, mine, fairqueue.Exclusive)
	require.Equal(t, cost{txns: 1, entries: 1}, m.spent())
	granted := wait(t, within(t, patience), ticket)
	m.watches.await(t, 1)
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
	leave(t, ticket)
}

// Promise 14: no herd. One release means one event, for one waiter.
func TestAReleaseWakesOneWaiter(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client, session.WithTTL(never)), "q", fairqueue.WithRecheck(never))
	holder := hold(t, q, fairqueue.Exclusive)
	m := newMeter(t, c)

	const waiters = 10
	var line []*fairqueue.Ticket
	var granted []<-chan error
	for i := range waiters {
		line = append(line, join(t, q, fairqueue.Exclusive))
		granted = append(granted, wait(t, within(t, patience), line[i]))
		m.watches.await(t, i+1)
	}
	require.Equal(t, waiters, m.spent().watches)
	for i := range waiters {
		leave(t, holder)
		requireGranted(t, granted[i])
		require.Equal(t, cost{reads: 1, txns: 1, events: 1, entries: 1}, m.spent())
		for _, other := range granted[i+1:] {
			requireWaiting(t, other)
		}
		holder = line[i]
	}
	leave(t, holder)
	require.Zero(t, m.spent().events)
}

// Waiting costs etcd reads, but nothing that goes through raft: neither the looks
// without a reason nor those that go to the quorum.
func TestRechecksWriteNothing(t *testing.T) {
	c, client := begin(t)
	s := open(t, client, session.WithTTL(never))
	hold(t, fairqueue.New(s, "q"), fairqueue.Exclusive)
	ticket := join(t, fairqueue.New(s, "q", fairqueue.WithRecheck(1)), fairqueue.Shared)
	before := c.AppliedIndex()
	ctx, cancel := context.WithCancel(within(t, patience))
	waiting := wait(t, ctx, ticket)
	spyOnRequests(c, "Txn", looking).await(t, 5)
	require.Equal(t, before, c.AppliedIndex())
	cancel()
	require.ErrorIs(t, result(t, waiting), context.Canceled)
}

// Deleted names stay in etcd's index until a compaction, so they are used again (W11).
func TestNamesAreUsedAgain(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := fairqueue.New(s, "q")
	name := func(mode fairqueue.Mode, slot int) string {
		return fmt.Sprintf("q/%c%x-%x", mode, s.Lease(), slot)
	}

	for range 3 {
		ticket := hold(t, q, fairqueue.Exclusive)
		require.Equal(t, name(fairqueue.Exclusive, 0), ticket.Key())
		require.Equal(t, revisionOf(t, client, ticket.Key()), ticket.Revision())
		leave(t, ticket)
	}
	var line []*fairqueue.Ticket
	for slot := range 17 {
		line = append(line, join(t, q, fairqueue.Shared))
		require.Equal(t, name(fairqueue.Shared, slot), line[slot].Key())
	}
	leave(t, line[5])
	require.Equal(t, name(fairqueue.Shared, 5), join(t, q, fairqueue.Shared).Key(), "the lowest that is free")
	requireBusy(t, q, fairqueue.Exclusive)
	require.Equal(t, name(fairqueue.Exclusive, 17), join(t, q, fairqueue.Exclusive).Key())
	// Another queue of the session counts for itself.
	require.Equal(t, "other"+name(fairqueue.Exclusive, 0)[1:], hold(t, fairqueue.New(s, "other"), fairqueue.Exclusive).Key())
}

// Whatever is read on behalf of a waiter may be answered by any member (invariant 2);
// a refusal must come from the quorum.
func TestWhoIsAsked(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client, session.WithTTL(never)), "q")
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
