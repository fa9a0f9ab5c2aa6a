package fairqueue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

func nameOf(s *session.Session, mode fairqueue.Mode, slot int) string {
	return fmt.Sprintf("q/%c%x-%x", mode, s.Lease(), slot)
}

// way is a way to join.
type way struct {
	mode fairqueue.Mode
	take func(*fairqueue.Queue, context.Context, fairqueue.Mode) (*fairqueue.Ticket, error)
}

var ways = map[string]way{
	"join":         {fairqueue.Exclusive, (*fairqueue.Queue).Join},
	"join shared":  {fairqueue.Shared, (*fairqueue.Queue).Join},
	"try":          {fairqueue.Exclusive, (*fairqueue.Queue).TryJoin},
	"try to share": {fairqueue.Shared, (*fairqueue.Queue).TryJoin},
}

func (w way) join(ctx context.Context, q *fairqueue.Queue) error {
	return errorOf(w.take(q, ctx, w.mode))
}

// requireNameFree waits until the first name of a session is free.
func requireNameFree(t *testing.T, s *session.Session, m fairqueue.Mode) {
	t.Helper()
	eventually(t, "the name is free", func() bool {
		ticket := join(t, queueAt(s, "q"), m)
		defer leave(t, ticket)
		return ticket.Key() == nameOf(s, m, 0)
	})
}

// retried runs a call whose first attempt is bitten by fault, and breaks the connections of its client, which makes it
// give that attempt up at once. With a fault that holds requests, the first one is on its way still when the call has
// returned.
func retried(t *testing.T, fault *embedtest.Fault, link *embedtest.Link, call func(ctx context.Context) error) {
	t.Helper()
	returned := background(t, func() error { return call(within(t, patience)) })
	require.NoError(t, fault.Wait(within(t, patience)))
	link.Cut()
	link.Heal()
	require.NoError(t, result(t, returned))
}

func TestGivingUpAfterALostReplyRemovesTheTicket(t *testing.T) {
	for how, way := range ways {
		t.Run(how, func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			fault := c.LoseReply("Txn", embedtest.When(creating))
			givesUp(t, fault, func(ctx context.Context) error { return way.join(ctx, queueAt(s, "q")) })
			fault.Heal()
			eventuallyEmpty(t, client, "q") // it had been created
			require.NoError(t, s.Err())
			hold(t, queueAt(s, "q"), way.mode)
		})
	}
}

func TestAContextThatIsOverSendsNothing(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	before := c.Calls("Txn")
	for _, way := range ways {
		require.ErrorIs(t, way.join(cancelled(), queueAt(s, "q")), context.Canceled)
	}
	require.Equal(t, before, c.Calls("Txn"))
	require.Equal(t, nameOf(s, fairqueue.Exclusive, 0), hold(t, queueAt(s, "q"), fairqueue.Exclusive).Key(), "no name was spent")
}

func TestALeaveThatFailsGoesOnInTheBackground(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	ticket := hold(t, queueAt(s, "q"), fairqueue.Exclusive)
	fault := c.LoseRequest("Txn", embedtest.When(leaving))
	givesUp(t, fault, ticket.Leave)
	require.NoError(t, ticket.Leave(within(t, patience)), "only the first call does anything")
	fault.Heal()
	eventuallyEmpty(t, client, "q")
	requireNameFree(t, s, fairqueue.Exclusive)
}

func TestLeavingWhatIsLostSaysSoAndTouchesNothing(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	ticket := hold(t, q, fairqueue.Exclusive)
	remove(t, client, ticket.Key())
	put(t, client, ticket.Key()) // the same name, and somebody else's
	reborn := revisionOf(t, client, ticket.Key())
	require.ErrorIs(t, ticket.Leave(within(t, patience)), session.ErrLost)
	require.Equal(t, reborn, revisionOf(t, client, ticket.Key()))
	require.NoError(t, s.Err())

	other := hold(t, queueAt(s, "other"), fairqueue.Exclusive)
	require.NoError(t, s.Close(within(t, patience)))
	require.ErrorIs(t, other.Leave(within(t, patience)), session.ErrClosed)
}

func TestALateDeleteDoesNotTouchANewerTicketOfItsName(t *testing.T) {
	c, client := begin(t)
	theirs, link := c.Link(t)
	q := queueAt(open(t, theirs), "q")
	old := hold(t, q, fairqueue.Exclusive)
	held := c.Hold("Txn", embedtest.Once(), embedtest.When(leaving))
	retried(t, held, link, old.Leave)
	ticket := hold(t, q, fairqueue.Exclusive)
	require.Equal(t, old.Key(), ticket.Key(), "the name is used again")

	arrive(t, c, held)
	require.Equal(t, ticket.Revision(), revisionOf(t, client, ticket.Key()))
	leave(t, ticket)
}

// The request arrives after the caller gave up and the doubt has been ended.
func TestATicketThatComesLateIsNotCreated(t *testing.T) {
	for how, way := range ways {
		t.Run(how, func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
			givesUp(t, held, func(ctx context.Context) error { return way.join(ctx, queueAt(s, "q")) })
			awaitNewEpoch(t, client, s)
			requireNoGhost(t, c, held, client)
			require.Empty(t, keysUnder(t, client, "q"))
			require.NoError(t, s.Err())
			requireNameFree(t, s, way.mode)
		})
	}
}

// A try that loses after its caller has left has been answered, so it costs no epoch.
func TestATryThatIsRefusedLateLeavesNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a request counts as in flight for a short time only
		c := embedtest.Start(t, embedtest.WithVirtualTime())
		client, s := c.Client(t), virtual(t, c.Client(t))
		busy := c.Hold("Txn", embedtest.Times(coalesce.AloneLimit))
		defer busy.Heal()
		for i := range coalesce.AloneLimit { // with others in flight, a request does not end with its caller
			background(t, func() error {
				_, _, err := s.Link().Commit(t.Context(), link.Transaction{Then: []clientv3.Op{clientv3.OpPut(fmt.Sprint("busy", i), "")}})
				return err
			})
		}
		eventually(t, "others are in flight", func() bool { return busy.Bites() == coalesce.AloneLimit })
		held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
		defer held.Heal()
		givesUp(t, held, func(ctx context.Context) error { return ways["try"].join(ctx, queueAt(s, "q")) })
		hold(t, queueAt(virtual(t, client), "q"), fairqueue.Exclusive)
		held.Heal()
		busy.Heal()
		requireNameFree(t, s, fairqueue.Exclusive)
		require.Zero(t, revisionOf(t, client, fmt.Sprintf("!/epoch/%x", s.Lease())))
	})
}

// A later attempt succeeds. The request of the first one arrives when the ticket has been left or given up.
func TestAFirstAttemptThatArrivesAfterTheTicketHasGoneCreatesNothing(t *testing.T) {
	for name, giveUp := range map[string]func(*testing.T, *embedtest.Cluster, *fairqueue.Ticket){
		"left": func(t *testing.T, _ *embedtest.Cluster, ticket *fairqueue.Ticket) { leave(t, ticket) },
		"given up by its wait": func(t *testing.T, _ *embedtest.Cluster, ticket *fairqueue.Ticket) {
			require.ErrorIs(t, ticket.Wait(cancelled()), context.Canceled)
		},
		"given up by its leave": func(t *testing.T, c *embedtest.Cluster, ticket *fairqueue.Ticket) {
			fault := c.LoseRequest("Txn", embedtest.When(leaving))
			givesUp(t, fault, ticket.Leave)
			fault.Heal()
		},
	} {
		for _, how := range []string{"join", "try"} {
			t.Run(how+", "+name, func(t *testing.T) {
				p := newPostponed(t, ways[how])
				giveUp(t, p.c, p.ticket)
				eventuallyEmpty(t, p.client, "q")
				awaitNewEpoch(t, p.client, p.ticket.Session())
				requireNoGhost(t, p.c, p.first, p.client)
				require.Empty(t, keysUnder(t, p.client, "q"))
				hold(t, queueAt(p.ticket.Session(), "q"), fairqueue.Exclusive)
			})
		}
	}
}

// postponed is a ticket that its second attempt has created, while the first is still on its way.
type postponed struct {
	c      *embedtest.Cluster
	client *clientv3.Client
	first  *embedtest.Fault
	ticket *fairqueue.Ticket
}

func newPostponed(t *testing.T, w way) *postponed {
	p := &postponed{}
	p.c, p.client = begin(t)
	theirs, link := p.c.Link(t)
	s := open(t, theirs)
	p.first = p.c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	retried(t, p.first, link, func(ctx context.Context) (err error) {
		p.ticket, err = w.take(queueAt(s, "q"), ctx, w.mode)
		return err
	})
	require.Equal(t, nameOf(s, w.mode, 0), p.ticket.Key())
	return p
}

func TestTheFirstAttemptThatArrivesWhileTheTicketLivesFindsIt(t *testing.T) {
	p := newPostponed(t, ways["join"])
	arrive(t, p.c, p.first)
	require.Equal(t, []string{p.ticket.Key()}, keysUnder(t, p.client, "q"))
	require.Equal(t, p.ticket.Revision(), revisionOf(t, p.client, p.ticket.Key()))
	leave(t, p.ticket)
	require.Empty(t, keysUnder(t, p.client, "q"))
}

// The retry learns that its key is there, and when it looks, the key is not there any more.
func TestARetryThatFindsItselfRemovedJoinsAnew(t *testing.T) {
	c, client, q := beginQueue(t)
	lost := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creating))
	look := c.Hold("Txn", embedtest.Once(), embedtest.When(func(message any) bool {
		return len(message.(*etcdserverpb.TxnRequest).Compare) == 0
	}))
	joined := background(t, func() error {
		ticket, err := q.Join(within(t, patience), fairqueue.Exclusive)
		if err != nil {
			return err
		}
		return ticket.Wait(within(t, patience))
	})
	require.NoError(t, lost.Wait(within(t, patience)))
	lost.Heal()
	require.NoError(t, look.Wait(within(t, patience)))
	remove(t, client, keysUnder(t, client, "q")[0])
	look.Heal()
	requireGranted(t, joined)
	require.Len(t, keysUnder(t, client, "q"), 1)
}

// Nor does it hide a ticket that comes late, or hold up Drain.
func TestAStrangersKeyAtTheNameIsReportedAndLeftAlone(t *testing.T) {
	for what, answered := range map[string]bool{"answered": true, "in doubt": false} {
		t.Run(what, func(t *testing.T) {
			c, client := begin(t)
			theirs, link := c.Link(t)
			k := session.Keep(theirs)
			s, err := k.Session(within(t, patience))
			require.NoError(t, err)
			name := nameOf(s, fairqueue.Exclusive, 0)
			put(t, client, name)
			var refusal error
			refused := func(ctx context.Context) error {
				refusal = ways["join"].join(ctx, queueAt(s, "q"))
				return nil
			}
			if answered {
				_ = refused(within(t, patience))
			} else {
				held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
				retried(t, held, link, refused)
				awaitNewEpoch(t, client, s)
				remove(t, client, name)
				requireNoGhost(t, c, held, client)
				put(t, client, name)
			}
			require.ErrorContains(t, refusal, "another program's key")
			other := join(t, queueAt(s, "q"), fairqueue.Exclusive)
			require.Equal(t, nameOf(s, fairqueue.Exclusive, 1), other.Key())
			leave(t, other)
			require.NoError(t, s.Err())
			remove(t, client, name)
			require.NoError(t, k.Drain(within(t, patience)))
		})
	}
}

// The mode of a ticket for permits comes with entries, and a slash makes a key outside the queue.
func TestOtherModesPanic(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	ctx := within(t, patience)
	holdPermits(t, q, 1, 3)
	for _, mode := range []fairqueue.Mode{'p', '/', 'a', 0} {
		place := fairqueue.Place{Queue: q, Mode: mode}
		fine := fairqueue.Place{Queue: queueAt(s, "other"), Mode: fairqueue.Shared}
		for name, take := range map[string]func(){
			"Join":    func() { _, _ = q.Join(ctx, mode) },
			"TryJoin": func() { _, _ = q.TryJoin(ctx, mode) },
			"JoinN":   func() { _, _ = fairqueue.JoinN(ctx, s, 1, fine, place) },
			"TryN":    func() { _, _ = fairqueue.TryN(ctx, s, 1, fine, place) },
		} {
			require.Panics(t, take, "%s with %q", name, byte(mode))
		}
	}
	require.Len(t, ticketsUnder(t, client, "q"), 1)
}
