package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// withSession runs attempt with a live session, and again with the next one if
// that turns out to be lost. A source that has no next one says so.
func withSession[T any](ctx context.Context, source session.Source, attempt func(*session.Session) (T, error)) (T, error) {
	var none T
	needContext(ctx)
	if source == nil {
		panic("etcdlock: a queue needs a session source, and is made with New")
	}
	for {
		s, err := source.Session(ctx)
		if err == nil {
			err = ctx.Err() // nothing sent, nothing to clean up
		}
		if err != nil {
			return none, err
		}
		result, err := attempt(s)
		if err == nil || !errors.Is(err, session.ErrLost) {
			return result, err
		}
	}
}

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("etcdlock: nil context")
	}
}

// newTicket reserves a name. What becomes of it is up to create.
func (q *Queue) newTicket(s *session.Session, m Mode, o joinOptions) *Ticket {
	slot := s.Link().Claim(string(q.space))
	t := &Ticket{queue: q, session: s, mode: m, slot: slot, me: entry{key: q.space.key(m, s.Lease(), slot, o.number)}}
	if t.value = o.value; m != Candidate {
		t.value = valueAt(q.owner, time.Now())
	}
	return t
}

func (t *Ticket) put() clientv3.Op {
	return clientv3.OpPut(t.me.key, t.value, clientv3.WithLease(t.session.Lease()))
}

// own reads the keys of tickets for create. Not the keys only: etcd answers that without the
// lease since 3.7.
func own(tickets []*Ticket) []clientv3.Op {
	reads := make([]clientv3.Op, len(tickets))
	for i, t := range tickets {
		reads[i] = clientv3.OpGet(t.me.key)
	}
	return reads
}

func (t *Ticket) absent() clientv3.Cmp { return createdAt(t.me.key, 0) }

// create commits creation, which creates the keys of all tickets, until it is answered; how it may share a request
// is decided here. Its comparisons must fail if one of the keys is there. If they are, an earlier attempt
// was applied although its answer never came, and found is true: then there is no answer, and the
// keys were there at revision seen. If none is, or not any more, ErrBusy. A try has other
// conditions as well. On an error nothing is left of the tickets, or the session takes care of it.
func create(ctx context.Context, tickets []*Ticket, try bool, creation link.Transaction) (answer *clientv3.TxnResponse, seen int64, found bool, err error) {
	s := tickets[0].session
	creation.Likely = !try
	creation.Apart = string(tickets[0].queue.space)
	// What is about several tickets stands in several queues, and may be as large as a transaction can be.
	creation.Alone = len(tickets) > 1
	creation.Late = func(answer *clientv3.TxnResponse, doubts int, err error) { createdLate(tickets, answer, doubts, err) }
	if err := s.Link().Admit(ctx); err != nil {
		forget(tickets)
		return nil, 0, false, err
	}
	chooseEpoch(tickets)
	for {
		epoch := tickets[0].epoch
		before, checked := epoch.Now(), epoch.Checked()
		readBack := own(tickets)
		if checked {
			readBack = append(readBack, epoch.Read())
		}
		creation.Epoch = epoch
		if try { // which may well be refused
			creation.Else = readBack
		}
		answer, doubts, err := s.Link().Commit(ctx, creation)
		if request.IsInFlight(err) { // from now on the tickets are those of Late
			return nil, 0, false, err
		}
		for _, t := range tickets {
			t.unanswered += doubts
		}
		noSpace := request.IsAnswer(err, rpctypes.ErrNoSpace) // which etcd says of what it has done, too
		switch {
		case err == nil && answer.Succeeded:
			created(tickets, answer)
			return answer, answer.Header.Revision, false, nil
		case request.IsAnswer(err, rpctypes.ErrPermissionDenied) && checked && epoch.Denies(ctx):
			if tickets[0].unanswered == 0 { // or the end of another epoch would not end the doubt
				chooseEpoch(tickets)
			}
			continue
		case err != nil && !noSpace:
			forget(tickets)
			return nil, 0, false, err
		}
		refusal := err
		if noSpace || !try { // rare enough for a request of its own, rather than a part of each that creates something
			if answer, err = readAll(ctx, s, readBack); err != nil {
				for _, t := range tickets {
					t.unanswered = max(t.unanswered, 1) // or somebody else's key: nobody knows
				}
			}
		}
		nothing := err == nil && nothingIn(answer.Responses[:len(tickets)])
		if noSpace && nothing {
			for _, t := range tickets {
				t.unanswered-- // that attempt has been answered
			}
			forget(tickets)
			return nil, 0, false, refusal
		}
		if checked && nothing {
			var moved bool
			if moved, err = epoch.Moved(ctx, before, answer.Responses[len(tickets)].GetResponseRange()); moved {
				continue
			}
		}
		if err != nil {
			forget(tickets)
			return nil, 0, false, err
		}
		return nil, answer.Header.Revision, true, findAgain(tickets, answer)
	}
}

// created is told of the transaction that has created the tickets.
func created(tickets []*Ticket, answer *clientv3.TxnResponse) {
	for _, t := range tickets {
		t.me.revision = answer.Header.Revision
	}
}

// createdLate takes care of tickets whose caller has left before etcd answered.
func createdLate(tickets []*Ticket, answer *clientv3.TxnResponse, doubts int, err error) {
	for _, t := range tickets {
		t.unanswered += doubts
	}
	if err == nil && answer.Succeeded {
		created(tickets, answer)
		abandon(tickets)
		return
	}
	for _, t := range tickets {
		// Keys that were there already are those of an earlier attempt.
		if err == nil || request.Doubtful(err) {
			t.unanswered++
		}
	}
	forget(tickets)
}

func forget(tickets []*Ticket) {
	for _, t := range tickets {
		t.forget()
	}
}

func readAll(ctx context.Context, s *session.Session, reads []clientv3.Op) (answer *clientv3.TxnResponse, err error) {
	err = s.Link().Call(ctx, func(ctx context.Context) (err error) {
		answer, err = s.Client().Txn(ctx).Then(reads...).Commit()
		return err
	})
	return answer, err
}

func nothingIn(answers []*etcdserverpb.ResponseOp) bool {
	return !slices.ContainsFunc(answers, func(r *etcdserverpb.ResponseOp) bool { return len(r.GetResponseRange().Kvs) > 0 })
}

// findAgain looks for the tickets of an earlier attempt where a later one found some key
// to be there. Unless all are there, it gives up those that are.
func findAgain(tickets []*Ticket, answer *clientv3.TxnResponse) error {
	var found, missing int
	var theirs string
	for i, t := range tickets {
		own := answer.Responses[i].GetResponseRange().Kvs
		switch {
		case len(own) == 0:
			missing++
		case clientv3.LeaseID(own[0].Lease) != t.session.Lease():
			theirs = t.me.key
		default:
			found++
			t.unanswered = max(t.unanswered-1, 0) // less the one that created it
			t.me.revision = own[0].CreateRevision
		}
	}
	if found == len(tickets) {
		return nil
	}
	for i, t := range tickets {
		switch {
		case t.me.revision > 0:
			t.abandon()
		case len(answer.Responses[i].GetResponseRange().Kvs) == 0:
			t.forget()
		case t.unanswered > 0:
			t.epoch.Doubt(t.me.key, func() {})
		default:
			// The slot stays taken: whatever wrote there may do so again.
		}
	}
	switch {
	case theirs != "":
		return fmt.Errorf("somebody else's key at %s", theirs)
	case missing == len(tickets):
		return ErrBusy
	}
	return ErrGone
}
