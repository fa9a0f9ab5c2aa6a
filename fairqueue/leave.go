package fairqueue

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// revokeLimit is for what only spares etcd something; the caller waits for it where something has failed.
const revokeLimit = 3 * time.Second

// longestLease is the greatest TTL that etcd grants, in seconds: 285 years.
const longestLease = 9_000_000_000

// leave gives up, in one transaction, those of the tickets that have not been given up yet.
func leave(ctx context.Context, tickets []*Ticket) error {
	tickets = claimLeaving(tickets)
	if len(tickets) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(tickets))
	for i, t := range tickets {
		deletes[i] = clientv3.OpDelete(t.me.key)
	}
	var which []clientv3.Op // of several are there, if not all
	if len(tickets) > 1 {
		which = own(tickets)
	}
	// left is told what has become of the transaction.
	left := func(answer *clientv3.TxnResponse, err error) (found bool) {
		found = err == nil && answer.Succeeded
		for _, t := range tickets {
			if err != nil || !found && len(tickets) > 1 { // one may be gone, and the others not
				t.discard()
			} else {
				t.forget()
			}
		}
		return found
	}
	ctx, cancel := request.Grace(ctx) // one that hangs on the hold ends with it, which may be at this moment
	defer cancel()
	answer, doubts, err := tickets[0].session.Link().Commit(ctx, link.Transaction{
		If: guardsOf(tickets), Then: deletes, Else: which,
		Likely: true,
		Alone:  len(tickets) > 1,
		Late:   func(answer *clientv3.TxnResponse, _ int, err error) { left(answer, err) },
	})
	if request.IsInFlight(err) {
		return err
	}
	if found := left(answer, err); err == nil && !found && (doubts == 0 || anyThere(tickets, answer)) {
		return ErrGone
	}
	return err
}

// anyThere is about several tickets of which not all were there. An earlier attempt, whose answer was lost,
// removed all of them or none.
func anyThere(tickets []*Ticket, answer *clientv3.TxnResponse) bool {
	for i, part := range answer.Responses {
		for _, e := range entriesOf(part.GetResponseRange().Kvs) {
			if e.is(tickets[i].me) {
				return true
			}
		}
	}
	return false
}

func claimLeaving(tickets []*Ticket) []*Ticket {
	var claimed []*Ticket
	for _, t := range tickets {
		if !t.left.Swap(true) {
			claimed = append(claimed, t)
		}
	}
	return claimed
}

func abandon(tickets []*Ticket) {
	for _, t := range tickets {
		t.abandon()
	}
}

// keep gives up the rest, if those chosen are still there: otherwise ErrGone. An attempt may arrive
// when the names of the rest are others' already, so each of them has a guard of its own.
func keep(ctx context.Context, chosen, rest []*Ticket) error {
	s := chosen[0].session
	var deletes []clientv3.Op
	for _, t := range rest {
		deletes = append(deletes, clientv3.OpTxn(t.Guards(), []clientv3.Op{clientv3.OpDelete(t.me.key)}, nil))
	}
	var found bool
	err := s.Link().Call(ctx, func(ctx context.Context) error {
		answer, err := s.Client().Txn(ctx).If(guardsOf(chosen)...).Then(deletes...).Commit()
		found = err == nil && answer.Succeeded
		return err
	})
	switch {
	case err != nil:
		return err // the caller gives up everything
	case !found:
		return ErrGone
	}
	for _, t := range claimLeaving(rest) {
		t.forget()
	}
	return nil
}

// Linger gives the ticket up in time d from now: until then others wait for it. Its key
// moves to a lease of its own, so that it stays that long, and then goes, even if
// this process ends first; the session only sees to it that it goes in time. A value given by
// Set is not kept. Two round
// trips, two raft entries. Errors are as for Leave; if etcd does not answer, the ticket
// stays with the session for that time.
func (t *Ticket) Linger(ctx context.Context, d time.Duration) error {
	return linger(ctx, []*Ticket{t}, d)
}

func linger(ctx context.Context, tickets []*Ticket, d time.Duration) error {
	tickets = claimLeaving(tickets)
	if len(tickets) == 0 {
		return nil
	}
	end := time.Now().Add(d)
	err := moveToOwnLease(ctx, tickets, end)
	left := time.Until(end)
	if errors.Is(err, ErrGone) {
		left = 0 // without it the others are of no use
	}
	for _, t := range tickets {
		if errors.Is(err, ErrGone) && len(tickets) == 1 {
			t.forget()
		} else {
			t.session.Link().DiscardAfter(left, t.me.key, t.me.revision, t.forget)
		}
	}
	return err
}

func moveToOwnLease(ctx context.Context, tickets []*Ticket, end time.Time) error {
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	s := tickets[0].session
	var lease *clientv3.LeaseGrantResponse
	err := s.Link().Call(ctx, func(ctx context.Context) (err error) {
		lease, err = s.Client().Grant(ctx, secondsIn(time.Until(end)))
		return err
	})
	if err != nil {
		return err
	}
	var there, doubtful bool
	err = s.Link().Call(ctx, func(ctx context.Context) error {
		answer, err := s.Client().Txn(ctx).If(guardsOf(tickets)...).Then(putsUnder(lease.ID, tickets)...).Commit()
		if request.IsAnswer(err, rpctypes.ErrLeaseNotFound) {
			// Not the session's: this one has run out, before an attempt was answered. All guards held, as etcd
			// looks at them first, so what is left to do is to remove the tickets in time.
			there = true
			return nil
		}
		doubtful = doubtful || request.Doubtful(err)
		there = err == nil && answer.Succeeded
		return err
	})
	switch {
	case err == nil && (there || doubtful && time.Until(end) <= 0): // having gone with that lease
		return nil
	case err == nil:
		err = ErrGone
	case request.Doubtful(err):
		return err // and they may have moved, or may yet
	}
	revoke(ctx, s.Client(), lease.ID)
	return err
}

// revoke ends a lease that nobody needs. If etcd does not answer, it runs out by itself.
func revoke(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, revokeLimit)
	defer cancel()
	_, _ = client.Revoke(ctx, lease)
}

// secondsIn rounds up, to what etcd grants.
func secondsIn(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return min(seconds, longestLease)
}

func guardsOf(tickets []*Ticket) (guards []clientv3.Cmp) {
	for _, t := range tickets {
		guards = append(guards, t.Guard())
	}
	return guards
}

func putsUnder(lease clientv3.LeaseID, tickets []*Ticket) (puts []clientv3.Op) {
	for _, t := range tickets {
		value := t.value
		if t.marked.Load() {
			value = t.markedValue()
		}
		puts = append(puts, clientv3.OpPut(t.me.key, value, clientv3.WithLease(lease)))
	}
	return puts
}
