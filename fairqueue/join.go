package fairqueue

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// joinLimit is how much of the queue the answer to a join brings back. A longer
// queue is asked about afterwards, outside of the apply loop.
const joinLimit = 64

// Join puts a ticket at the end of the queue: one round trip, one raft entry. It
// does not wait for the grant; the ticket's Wait does, without a further request
// if nothing blocks the ticket.
//
// On an error no ticket is left behind that could block others: if one may exist,
// the session removes it in the background. The errors are ctx's, etcd's and
// [session.ErrLost] or [session.ErrClosed]; if the source is a Keeper, a session
// that turns out to be lost is replaced, and if that takes longer than 10 s and ctx
// has no deadline, the error is context.DeadlineExceeded. A nil context panics, and so does
// another mode than [Exclusive], [Shared] and [Candidate].
func (q *Queue) Join(ctx context.Context, m Mode, opts ...JoinOption) (*Ticket, error) {
	m.mustBeJoinable()
	o := collectJoin(opts)
	if err := q.admit(m, o); err != nil {
		return ticketOr(nil, q, err)
	}
	t, err := withSession(ctx, q.source, func(s *session.Session) (*Ticket, error) {
		t := q.newTicket(s, m, o)
		return t, joinTogether(ctx, []*Ticket{t})
	})
	return ticketOr(t, q, err)
}

// TryJoin takes a ticket only if it is granted at once, and returns [ErrBusy]
// otherwise, with nothing written: one linearizable read, and one transaction if
// that found nothing in the way. (Where keys of other queues lie below the prefix,
// which only happens with raw ones, or an owner shares what it owns, a ticket may be
// written and taken back if somebody comes in between.) The ticket's Wait returns at once.
//
// Errors are as for Join.
func (q *Queue) TryJoin(ctx context.Context, m Mode, opts ...JoinOption) (*Ticket, error) {
	m.mustBeJoinable()
	o := collectJoin(opts)
	if err := q.admit(m, o); err != nil {
		return ticketOr(nil, q, err)
	}
	t, err := withSession(ctx, q.source, func(s *session.Session) (*Ticket, error) {
		tickets, err := tryTogether(ctx, s, []Place{{q, m}}, 1, o)
		if err != nil {
			return nil, err
		}
		return tickets[0], nil
	})
	return ticketOr(t, q, err)
}

func ticketOr(t *Ticket, q *Queue, err error) (*Ticket, error) {
	if err != nil {
		return nil, q.failed(err)
	}
	return t, nil
}

func (q *Queue) failed(err error) error {
	if err != nil {
		return fmt.Errorf("queue %s: %w", q.space, denied(q.source, err, q.space))
	}
	return nil
}

// joinTogether creates all tickets at one revision. What the answer brings back of each
// queue is less the more there are; beyond what a transaction can carry, nothing.
func joinTogether(ctx context.Context, tickets []*Ticket) error {
	conditions, then := creationOf(tickets)
	limit := int64(max(joinLimit/len(tickets), 1))
	for _, t := range tickets {
		then = append(then, t.start(limit)...)
	}
	asked := len(then) > len(tickets)
	told := asked && len(then) <= maxOperations
	if !told { // more than a transaction can carry
		then = then[:len(tickets)]
	}
	creation := link.Transaction{If: conditions, Then: then}
	response, seen, found, err := create(ctx, tickets, false, creation)
	if told && errors.Is(err, rpctypes.ErrTooManyOps) { // this etcd takes fewer
		rename(tickets)
		told = false
		creation.If, creation.Then = creationOf(tickets)
		response, seen, found, err = create(ctx, tickets, false, creation)
	}
	if errors.Is(err, ErrBusy) {
		err = ErrGone // nothing but their own keys could be in the way
	}
	if err != nil {
		return err
	}
	switch {
	case found, !asked: // Wait has to look
		for _, t := range tickets {
			t.seen, t.verdict = seen, askFurther
		}
	case told:
		lists := make([]list, 0, len(then))
		for _, part := range response.Responses[len(tickets):] {
			r := part.GetResponseRange()
			lists = append(lists, list{entriesOf(r.Kvs), r.More, r.Count})
		}
		tell(tickets, lists, seen)
	default:
		return askTogether(ctx, tickets)
	}
	return nil
}

// creationOf creates each of the tickets under the name that it has.
func creationOf(tickets []*Ticket) (conditions []clientv3.Cmp, puts []clientv3.Op) {
	conditions = make([]clientv3.Cmp, len(tickets))
	puts = make([]clientv3.Op, len(tickets), 3*len(tickets))
	for i, t := range tickets {
		conditions[i], puts[i] = t.absent(), t.put()
	}
	return conditions, puts
}

// rename prepares tickets of a group for another attempt, after one that etcd has refused and that has freed
// their names.
func rename(tickets []*Ticket) {
	for _, t := range tickets {
		again := t.queue.newTicket(t.session, t.mode, joinOptions{})
		t.slot, t.me, t.unanswered = again.slot, again.me, 0
	}
}

// tell lets tickets that have just been created hear what was read with their start.
func tell(tickets []*Ticket, lists []list, revision int64) {
	for _, t := range tickets {
		a := answer{revision: revision}
		if t.mode == Shared { // not in what was read, but created at this revision or before
			a.entries = append(a.entries, t.me)
		}
		for range t.queue.space.blocking(t.mode) {
			a.entries = append(a.entries, lists[0].entries...)
			if lists[0].more {
				a.from = t.me.revision + 1
			}
			lists = lists[1:]
		}
		t.seen = a.revision
		t.hear(t.queue.space.decide(t.me, t.mode, t.me.revision, a))
	}
}

// askTogether looks for many tickets at once, since their join could not tell.
func askTogether(ctx context.Context, tickets []*Ticket) error {
	questions := make([][]clientv3.Op, len(tickets))
	for i, t := range tickets {
		questions[i] = t.questions(1, false)
	}
	err := readEach(ctx, tickets[0].session, questions, func(i int, lists []list, revision int64) {
		t := tickets[i]
		t.seen = revision
		t.hear(t.queue.space.decide(t.me, t.mode, t.me.revision, answerOf(lists, revision)))
	})
	if err != nil {
		abandon(tickets)
	}
	return err
}

// start reads what may block t, the beginning of it in the order of keys, for the
// transaction that creates t.
func (t *Ticket) start(limit int64) []clientv3.Op {
	if limit == joinLimit && t.mode != Shared {
		if t.slot >= joinLimit {
			return nil // the session alone has, or had, more there than that, and etcd counts even those that it leaves out
		}
		return []clientv3.Op{t.queue.start}
	}
	var reads []clientv3.Op
	for _, span := range t.queue.space.blocking(t.mode) {
		reads = append(reads, clientv3.OpGet(span.first, append(t.mode.readOptions(false), clientv3.WithRange(span.end), clientv3.WithLimit(limit))...))
	}
	return reads
}
