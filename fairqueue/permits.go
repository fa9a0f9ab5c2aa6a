package fairqueue

import (
	"context"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// A ticket for permits has a weight. It is granted when the weights of all tickets ahead of it,
// waiting or not, and its own are no more than the size. As those ahead can only vanish,
// that stays true, and as waiting ones count as well, none is overtaken.
//
// So whether a ticket owns follows from the keys alone. When it came to own does not: that may
// happen without an event of its key. Therefore the first in line that does not own watches all
// ahead of it, and every other one watches its predecessor, which puts its value again when it
// comes to own after having waited. After a reduction of the size a predecessor that has owned
// since before looks like one that waits. A ticket that waits for it finds out at the next recheck
// that others ahead have left.

// SizeError says that a semaphore was used with another size than the one agreed on, with slots where others
// use it without, or for more permits than there are.
type SizeError struct {
	Asked  int64 // the size given, or the number of permits
	Agreed int64 // the size in etcd
	Weight bool  // whether it is about the number of permits
	Slots  bool  // whether it is about WithSlots, which all users give or none
}

func (e *SizeError) Error() string {
	switch {
	case e.Slots:
		return "etcdlock: the semaphore is used with WithSlots and without it; all its users must give it, or none"
	case e.Weight:
		return fmt.Sprintf("etcdlock: %d permits asked for, and there are %d in all", e.Asked, e.Agreed)
	}
	return fmt.Sprintf("etcdlock: the semaphore has size %d, not %d; its size is changed with Resize", e.Agreed, e.Asked)
}

// permits is the strategy of tickets for permits.
type permits struct {
	weight int64
	size   int64    // last known
	ahead  []string // keys, if all those ahead may own
}

// JoinPermits puts a ticket for weight permits of the given size's semaphore at the end of
// the queue: one round trip, one raft entry. The first to come sets the size; a call
// with another gets a [*SizeError], unless [Queue.Resize] has replaced that size. If weight is more
// than the size, that error comes from here or, after a Resize, from Wait. Otherwise it is
// like [Queue.Join].
//
// The ticket's Wait costs one transaction more than others do if it has had to wait.
func (q *Queue) JoinPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	return q.acquire(ctx, "", func(s *session.Session) (*Ticket, error) {
		return q.joinPermits(ctx, s, weight, size)
	})
}

// TryPermits is JoinPermits only if that is granted at once. Otherwise the error is
// [ErrBusy]: one linearizable read, which writes nothing, and one transaction if there was
// room. If another ticket takes the room in between, it has to leave the queue again, which is one transaction more.
func (q *Queue) TryPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	return q.acquire(ctx, "", func(s *session.Session) (*Ticket, error) {
		if err := q.room(ctx, s, weight, size); err != nil {
			return nil, err
		}
		t, err := q.joinPermits(ctx, s, weight, size)
		if err != nil {
			return nil, err
		}
		return t, grantedOrLeave(ctx, t.parts)
	})
}

func (q *Queue) joinPermits(ctx context.Context, s *session.Session, weight, size int64) (*Ticket, error) {
	if weight < 1 || size < 1 {
		panic("etcdlock: permits, and the size of a semaphore, must be positive")
	}
	if weight > size {
		// It may have been resized. If not, nothing must be written: a ticket that takes more
		// than there is would hold up those behind it.
		if err := q.fits(ctx, s, weight, size); err != nil {
			return nil, err
		}
	}
	p := q.newPart(s, permit, "", weight)
	strategy := &permits{weight: weight, size: size}
	p.strategy = strategy
	agreed := q.space.sizes().all()
	record := clientv3.OpTxn(
		[]clientv3.Cmp{agreed.vacant()},
		[]clientv3.Op{clientv3.OpPut(q.space.sizeKey(size), agreement{Slots: q.slots}.value())}, nil)
	claim([]*part{p})
	response, seen, err := create(ctx, []*part{p}, []clientv3.Op{
		record, clientv3.OpGet(agreed.first, clientv3.WithRange(agreed.end)), q.beginning(permit, joinLimit)[0],
	})
	if err != nil {
		return nil, err
	}
	p.seen, p.verdict = seen, askFurther
	var sizes []*mvccpb.KeyValue
	if response != nil {
		sizes = response.Responses[2].GetResponseRange().Kvs
		if queue := response.Responses[3].GetResponseRange(); !queue.More {
			err = strategy.learn(p, snapshotOf(q.space, entriesOf(queue.Kvs), seen, size))
		}
	}
	if disagreement := p.settle(ctx, sizes, weight, size); disagreement != nil {
		err = disagreement
	}
	if err != nil {
		// Now rather than in the background: it takes permits from others, and keeps the size from being forgotten.
		_ = leave(ctx, []*part{p})
		return nil, err
	}
	return newTicket(p), nil
}

// settle makes sure that a size is recorded, and that it agrees with the one given, after the join. That has read
// sizes, or nothing if it was found again. It has recorded the size, unless
// there is another program's key in the folder.
func (p *part) settle(ctx context.Context, sizes []*mvccpb.KeyValue, weight, size int64) error {
	if p.queue.space.recorded(sizes) != nil {
		return p.queue.agree(sizes, size)
	}
	if err := p.queue.setSize(ctx, p.session, size, true); err != nil {
		return err
	}
	if p.verdict == granted {
		weight = 1 // a reduction takes nothing away
	}
	return p.queue.fits(ctx, p.session, weight, size)
}

// fits returns a SizeError if the size is not the one agreed on, or less than weight.
func (q *Queue) fits(ctx context.Context, s *session.Session, weight, size int64) error {
	folder := q.space.sizes().all()
	answer, err := s.Link().Read(ctx, clientv3.OpGet(folder.first, clientv3.WithRange(folder.end)))
	if err != nil {
		return err
	}
	kvs := answer.Responses[0].GetResponseRange().Kvs
	if err := q.agree(kvs, size); err != nil {
		return err
	}
	if agreed := q.space.sizeIn(entriesOf(kvs), size); weight > agreed {
		return &SizeError{Asked: weight, Agreed: agreed, Weight: true}
	}
	return nil
}

// room returns ErrBusy if the permits are not free.
func (q *Queue) room(ctx context.Context, s *session.Session, weight, size int64) error {
	all, agreed := q.space.all(), q.space.sizes().all()
	answer, err := s.Link().Read(ctx,
		clientv3.OpGet(agreed.first, clientv3.WithRange(agreed.end)),
		clientv3.OpGet(all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly()))
	if err == nil {
		err = q.agree(answer.Responses[0].GetResponseRange().Kvs, size)
	}
	if err != nil {
		return err
	}
	snapshot := snapshotOf(q.space, entriesOf(answer.Responses[1].GetResponseRange().Kvs), answer.Header.Revision, size)
	if weight > snapshot.size {
		return &SizeError{Asked: weight, Agreed: snapshot.size, Weight: true}
	}
	// A ticket that joins now would be behind all of them.
	if v, _, _ := snapshot.decide(q.space, entry{revision: math.MaxInt64}, weight); v != granted {
		return ErrBusy
	}
	return nil
}

// look reads the head of the queue, its end as far as the ticket, and the size.
func (s *permits) look(ctx context.Context, p *part, since wakeup) error {
	minRevision := max(since.revision, p.me.revision)
	local := true
	for limit := int64(joinLimit); ; {
		snapshot, err := s.read(ctx, p, limit, local)
		switch {
		case err != nil:
			return err
		case snapshot.revision < minRevision:
			if !local {
				return p.link().WentBack(minRevision, snapshot.revision)
			}
			local = false
			continue
		}
		if err := s.learn(p, snapshot); err != nil || p.verdict != askFurther {
			return err
		}
		if limit == 0 {
			panic("fairqueue: an unlimited answer was cut off")
		}
		limit = 0
	}
}

func (s *permits) read(ctx context.Context, p *part, limit int64, local bool) (permitSnapshot, error) {
	all, agreed := p.queue.space.all(), p.queue.space.sizes().all()
	sorted := func(order clientv3.SortOrder, limit int64) clientv3.Op {
		return clientv3.OpGet(all.first, append(permit.readOptions(local), clientv3.WithRange(all.end),
			clientv3.WithSort(clientv3.SortByCreateRevision, order),
			clientv3.WithMaxCreateRev(p.me.revision), clientv3.WithLimit(limit))...)
	}
	lists, revision, err := read(ctx, p.session,
		clientv3.OpGet(agreed.first, append(permit.readOptions(local), clientv3.WithRange(agreed.end))...),
		sorted(clientv3.SortAscend, limit),
		sorted(clientv3.SortDescend, min(limit, 3))) // with one to spare for a key of another kind
	if err != nil {
		return permitSnapshot{}, err
	}
	return permitSnapshot{
		revision: revision, size: p.queue.space.sizeIn(lists[0].entries, s.size),
		first: lists[1].entries, whole: !lists[1].more, last: lists[2].entries,
	}, nil
}

// learn records what a snapshot means for p. The error is a SizeError, if p wants more than there is.
func (s *permits) learn(p *part, snapshot permitSnapshot) error {
	p.seen, s.size = snapshot.revision, snapshot.size
	if s.weight > s.size {
		return &SizeError{Asked: s.weight, Agreed: s.size, Weight: true}
	}
	p.verdict, p.nearest, s.ahead = snapshot.decide(p.queue.space, p.me, s.weight)
	return nil
}

func (s *permits) firstLook(ctx context.Context, p *part) error { return inOrder{}.firstLook(ctx, p) }

func (s *permits) recheck(context.Context, *part, []*part, int64) (bool, error) { return false, nil }

// blocker is a put or the deletion of the predecessor, or the deletion of any ticket ahead, or of the size.
func (s *permits) blocker(p *part) blocker {
	nearest, ahead := p.nearest, s.ahead
	b := blocker{
		span:    span{first: nearest.key},
		puts:    true,
		endedBy: func(e *clientv3.Event) bool { return e.Kv.ModRevision > nearest.revision },
		exists: func(ctx context.Context, minRevision int64) (bool, int64, error) {
			err := s.look(ctx, p, wakeup{revision: minRevision})
			unchanged := err == nil && p.verdict == blocked && p.nearest == nearest && (s.ahead == nil) == (ahead == nil)
			return unchanged, p.seen, err
		},
	}
	if ahead != nil {
		b.span, b.puts = p.queue.space.all(), false
		b.endedBy = func(e *clientv3.Event) bool {
			key := string(e.Kv.Key)
			_, resized := p.queue.space.sizeOf(key)
			return resized || slices.Contains(ahead, key)
		}
	}
	return b
}

// granted wakes the next in line, if that may have seen p waiting.
func (s *permits) granted(ctx context.Context, p *part) error {
	if p.seen == p.me.revision {
		return nil
	}
	return p.set(ctx, p.value)
}
