package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
// has no deadline, the error is context.DeadlineExceeded. A nil context panics.
func (q *Queue) Join(ctx context.Context, m Mode) (*Ticket, error) {
	return q.withSession(ctx, func(s *session.Session) (*Ticket, error) {
		return q.join(ctx, s, m)
	})
}

// TryJoin takes a ticket only if it is granted at once, and returns [ErrBusy]
// otherwise, with nothing written: one linearizable read, and one transaction if
// that found nothing in the way. (Where keys of other queues lie below the prefix,
// which only happens with raw ones, a ticket may be written and taken back if
// somebody comes in between.) The ticket's Wait returns at once.
//
// Errors are as for Join.
func (q *Queue) TryJoin(ctx context.Context, m Mode) (*Ticket, error) {
	return q.withSession(ctx, func(s *session.Session) (*Ticket, error) {
		return q.tryJoin(ctx, s, m)
	})
}

// withSession runs attempt with a live session, and again with the next one if
// that turns out to be lost. A source that has no next one says so.
func (q *Queue) withSession(ctx context.Context, attempt func(*session.Session) (*Ticket, error)) (*Ticket, error) {
	if ctx == nil {
		panic("etcdlock: nil context")
	}
	for {
		s, err := q.source.Session(ctx)
		if err == nil {
			err = ctx.Err() // nothing sent, nothing to clean up
		}
		if err == nil {
			var t *Ticket
			if t, err = attempt(s); err == nil {
				return t, nil
			}
			if errors.Is(err, session.ErrLost) {
				continue
			}
		}
		return nil, fmt.Errorf("queue %s: %w", q.space, err)
	}
}

func (q *Queue) join(ctx context.Context, s *session.Session, m Mode) (*Ticket, error) {
	t := q.newTicket(s, m)
	response, err := t.create(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.me.key), "=", 0)},
		[]clientv3.Op{t.put(), q.start},
		[]clientv3.Op{t.own()})
	if err != nil {
		return nil, err
	}
	a := answer{revision: response.Header.Revision, from: t.me.revision + 1}
	if response.Succeeded { // otherwise an earlier attempt had been applied, and Wait has to look
		queue := response.Responses[1].GetResponseRange()
		a.entries = entriesOf(queue.Kvs)
		if !queue.More {
			a.from = 0
		}
	}
	t.hear(q.space.decide(t.me, m, t.me.revision, a))
	t.seen = a.revision
	return t, nil
}

func (q *Queue) tryJoin(ctx context.Context, s *session.Session, m Mode) (*Ticket, error) {
	free, nested, err := q.free(ctx, s, m)
	switch {
	case err != nil:
		return nil, err
	case !free:
		return nil, ErrBusy
	case nested:
		return q.joinOrLeave(ctx, s, m)
	}
	t := q.newTicket(s, m)
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.me.key), "=", 0)}
	for _, span := range q.space.blocking(m) {
		// On a range this holds for every key in it, and none was created at 0.
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(span.first), "=", 0).WithRange(span.end))
	}
	_, err = t.create(ctx, conditions,
		[]clientv3.Op{t.put()},
		[]clientv3.Op{t.own()})
	if err != nil {
		return nil, err
	}
	t.verdict = granted
	return t, nil
}

// free reports whether nothing in the queue blocks mode m, and whether keys of
// other queues lie below its prefix, which happens only with raw prefixes.
func (q *Queue) free(ctx context.Context, s *session.Session, m Mode) (free, nested bool, err error) {
	for _, limit := range []int64{1, 0} {
		var reads []clientv3.Op
		for _, span := range q.space.blocking(m) {
			reads = append(reads, clientv3.OpGet(span.first, clientv3.WithRange(span.end), clientv3.WithLimit(limit), clientv3.WithKeysOnly()))
		}
		lists, _, err := read(ctx, s, reads...)
		if err != nil {
			return false, false, err
		}
		nested = false
		for _, list := range lists {
			for _, e := range list.entries {
				if q.space.blocks(e.key, m) {
					return false, false, nil
				}
				nested = true
			}
		}
		if !nested {
			break
		}
	}
	return true, nested, nil
}

// joinOrLeave is TryJoin where keys of other queues below the prefix rule out the
// condition that its range be empty. Only if somebody comes in between does it
// write for nothing.
func (q *Queue) joinOrLeave(ctx context.Context, s *session.Session, m Mode) (*Ticket, error) {
	t, err := q.join(ctx, s, m)
	if err != nil {
		return nil, err
	}
	if t.verdict == askFurther {
		if err := t.look(ctx, t.me.revision); err != nil {
			t.abandon()
			return nil, err
		}
	}
	if t.verdict == granted {
		return t, nil
	}
	if err := t.Leave(ctx); err != nil {
		return nil, err
	}
	return nil, ErrBusy
}

func (q *Queue) newTicket(s *session.Session, m Mode) *Ticket {
	slot := s.Claim(string(q.space))
	return &Ticket{queue: q, session: s, mode: m, slot: slot, me: entry{key: q.space.key(m, s.Lease(), slot)}}
}

func (t *Ticket) put() clientv3.Op {
	return clientv3.OpPut(t.me.key, valueAt(t.queue.owner, time.Now()), clientv3.WithLease(t.session.Lease()))
}

// own reads t's key for create. Not the key only: etcd answers that without the
// lease since 3.7.
func (t *Ticket) own() clientv3.Op { return clientv3.OpGet(t.me.key) }

// create runs the transaction that creates t's key, until it is answered. The
// first operation of otherwise must get that key: if it is there, an earlier
// attempt was applied although its answer never came. If it is not, ErrBusy.
func (t *Ticket) create(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	var answer *clientv3.TxnResponse
	err := t.session.Call(ctx, func(ctx context.Context) (err error) {
		answer, err = t.session.Client().Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
		if session.Doubtful(err) {
			t.unanswered++
		}
		return err
	})
	if err != nil {
		t.forget()
		return nil, err
	}
	if answer.Succeeded {
		t.me.revision = answer.Header.Revision
		return answer, nil
	}
	own := answer.Responses[0].GetResponseRange().Kvs
	switch {
	case len(own) == 0:
		t.forget()
		return nil, ErrBusy
	case clientv3.LeaseID(own[0].Lease) != t.session.Lease():
		// The slot stays taken: whoever wrote there may do so again.
		if t.unanswered > 0 {
			t.session.Discard(t.me.key, 0, nil)
		}
		return nil, fmt.Errorf("somebody else's key at %s", t.me.key)
	}
	t.unanswered = max(t.unanswered-1, 0) // less the one that created it
	t.me.revision = own[0].CreateRevision
	return answer, nil
}
