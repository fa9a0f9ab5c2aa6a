package fairqueue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// joinLimit is how much of the queue the answer to a join brings back. A longer
// queue is asked about afterwards, outside of the apply loop.
const joinLimit = 64

// Place is a queue, and the kind of ticket that is wanted in it.
type Place struct {
	Queue *Queue
	Mode  Mode // Exclusive, Shared, Upgradeable (as the only place) or Candidate; any other panics

	// Value is that of a candidate, of at most 1 MiB. With a larger one the error is [ErrTooLarge].
	Value string
	// Priority is that of a candidate, and becomes part of the key. The queue itself keeps the order of arrival, and
	// [Ticket.Wait] passes it on to a candidate of higher priority. A negative one panics.
	Priority int
}

// Join puts a ticket at the end of the queue: one round trip, one raft entry. It
// does not wait for the grant; the ticket's Wait does, without a further request
// if nothing blocks the ticket.
//
// On an error no ticket is left behind that could block others: if one may exist,
// the session removes it in the background. The errors are ctx's, etcd's and
// [session.ErrLost] or [session.ErrClosed]; if the source is a Keeper, a session
// that turns out to be lost is replaced, and if that takes longer than 10 s and ctx
// has no deadline, the error is context.DeadlineExceeded. A nil context panics, and so does
// another mode than [Exclusive], [Shared], [Upgradeable] and [Candidate].
func (q *Queue) Join(ctx context.Context, m Mode) (*Ticket, error) {
	return JoinN(ctx, q.source, 1, Place{Queue: q, Mode: m})
}

// TryJoin takes a ticket only if it is granted at once, and returns [ErrBusy]
// otherwise: one linearizable read, which writes nothing, and one transaction if
// that found nothing in the way. If another ticket comes in between, this one leaves the queue again, which is
// one transaction more. The ticket's Wait returns at once.
//
// Errors are as for Join.
func (q *Queue) TryJoin(ctx context.Context, m Mode) (*Ticket, error) {
	return TryN(ctx, q.source, 1, Place{Queue: q, Mode: m})
}

// JoinN takes one ticket with a key in each of the places, whose queues must be different ones: one round trip, one
// raft entry. All keys have one revision, so the ticket that comes first is ahead in every queue, and no two tickets
// wait for each other. Wait returns when n of the keys are granted, and removes the others, in one transaction. Then
// [Ticket.Chosen] returns the granted ones. Until then the loss of any key is the loss of the ticket.
//
// For more than 64 places it takes a read more, for more than
// 42 if all are shared up to four, after which Wait may need one more. All keys are bound to one
// session, of source. If n is less than 1 or more than there are places it panics; if it is more than 127, or more than
// etcd allows, the error is a [*TooManyError]. Where etcd was told to allow less than 128 operations in a
// transaction, it may take a few requests more. Otherwise it is like [Queue.Join].
//
// With more than 127 places, or more than etcd allows, it joins only a part of them, 64 or n, or fewer, chosen at
// random in each call, and gets none of the others. Only tickets that wait for the same place are served in the order
// in which they joined.
func JoinN(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	if err := checkPlaces(ctx, places, n); err != nil {
		return nil, err
	}
	joined := len(places)
	if joined > maxPlaces {
		joined = max(maxOperations/2, n)
	}
	for {
		some := rand.Perm(len(places))[:joined]
		slices.Sort(some)
		t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) {
			parts := make([]*part, joined)
			for i, index := range some {
				parts[i] = places[index].newPart(ctx, s, index, n < joined)
			}
			t := newTicket(parts...)
			t.want = n
			return t, enqueue(ctx, parts)
		})
		if joined == n || !request.IsAnswer(err, rpctypes.ErrTooManyOps) {
			return t, refused(ctx, source, err, places, n)
		}
		joined = max(joined/2, n)
	}
}

// TryN takes a ticket in n of the places, chosen at random among those that are free, or returns [ErrBusy] if there
// are fewer: one read, which writes nothing, and one transaction if there are enough. If others are faster, it leaves
// the queues and begins again. Errors are as for JoinN.
func TryN(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	if err := checkPlaces(ctx, places, n); err != nil {
		return nil, err
	}
	t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) { return try(ctx, s, places, n) })
	return t, refused(ctx, source, err, places, n)
}

// refused is err as that of an attempt to join n of the places.
func refused(ctx context.Context, source session.Source, err error, places []Place, n int) error {
	if err == nil {
		return nil
	}
	if request.IsAnswer(err, rpctypes.ErrTooManyOps) {
		return &TooManyError{Places: n}
	}
	if len(places) == 1 {
		return places[0].Queue.failed(ctx, err)
	}
	prefixes := make([]string, len(places))
	for i, p := range places {
		prefixes[i] = string(p.Queue.space)
	}
	return failed(ctx, source, fmt.Sprintf("%d of %d queues", n, len(places)), err, prefixes...)
}

// newPart is for a ticket that needs all its places, or has a choice.
func (p Place) newPart(ctx context.Context, s *session.Session, index int, choice bool) *part {
	value := p.Value
	if p.Mode != Candidate {
		value = p.Queue.value(ctx, s, choice)
	}
	if p.Mode == Upgradeable {
		value = markedValue(value)
	}
	part := p.Queue.newPart(s, p.Mode, value, int64(p.Priority))
	part.place = index
	part.shares.Store(p.Mode == Upgradeable)
	return part
}

// checkPlaces is for a ticket in n of the places.
func checkPlaces(ctx context.Context, places []Place, n int) error {
	if n < 1 || n > len(places) {
		panic(fmt.Sprintf("fairqueue: %d of %d places", n, len(places)))
	}
	for _, p := range places {
		p.Mode.mustBeJoinable()
		if p.Mode == Upgradeable && len(places) > 1 {
			panic("fairqueue: an upgradeable ticket has one place")
		}
		if p.Priority < 0 {
			panic("etcdlock: a negative priority")
		}
		if err := cmp.Or(p.Queue.checkLabel(), checkValue(p.Value)); err != nil {
			return p.Queue.failed(ctx, err)
		}
	}
	if n > maxPlaces {
		return &TooManyError{Places: n, Limit: maxPlaces}
	}
	return nil
}

// enqueue creates the keys of parts at one revision, and records what the answer says of each. The answer brings back
// less of each queue the more there are; beyond what a transaction can carry, nothing.
func enqueue(ctx context.Context, parts []*part) error {
	keysOf(parts).Claim()
	var reads []clientv3.Op
	for _, p := range parts {
		reads = append(reads, p.start(max(joinLimit/len(parts), 1))...)
	}
	if len(parts)+len(reads) > maxOperations {
		reads = nil
	}
	response, seen, err := create(ctx, parts, reads)
	if len(reads) > 0 && request.IsAnswer(err, rpctypes.ErrTooManyOps) { // this etcd takes fewer
		keysOf(parts).Claim()
		reads = nil
		response, seen, err = create(ctx, parts, nil)
	}
	switch {
	case err != nil:
		return err
	case response != nil && len(reads) > 0:
		lists := listsOf(response.Responses[len(parts):])
		for _, p := range parts {
			lists = p.learnFromStart(lists, seen)
		}
	case len(parts) > 1:
		return askAll(ctx, parts)
	default:
		parts[0].seen, parts[0].verdict = seen, askFurther
	}
	return nil
}

// start reads what may block p, in the transaction that creates p.
func (p *part) start(limit int) []clientv3.Op {
	if limit == joinLimit && p.key.Number >= joinLimit && p.mode != Shared {
		return nil // the session alone has, or had, more keys there, and etcd counts even those that it leaves out
	}
	return p.queue.beginning(p.mode, int64(limit))
}

// beginning reads what may block a ticket of mode m, up to limit keys of each span, in the order of keys.
func (q *Queue) beginning(m Mode, limit int64) (reads []clientv3.Op) {
	for _, span := range q.space.blocking(m) {
		reads = append(reads, clientv3.OpGet(span.first, append(m.readOptions(false), clientv3.WithRange(span.end), clientv3.WithLimit(limit))...))
	}
	return reads
}

// learnFromStart records what start has read, the first of the lists, and returns the rest.
func (p *part) learnFromStart(lists []list, revision int64) (rest []list) {
	a := answer{revision: revision}
	if p.mode == Shared { // not in what was read, but created at this revision or before
		a.entries = append(a.entries, p.me)
	}
	for range p.queue.space.blocking(p.mode) {
		a.entries = append(a.entries, lists[0].entries...)
		if lists[0].more {
			a.completeSince = p.me.revision + 1
		}
		lists = lists[1:]
	}
	p.learn(a, p.me.revision)
	return lists
}
