package fairqueue

import (
	"cmp"
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
	Slots  bool  // whether it is about Options.Slots, which all users give or none
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
// If the ticket has to wait, its Wait costs one transaction more than that of other tickets.
func (q *Queue) JoinPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	return q.acquire(ctx, func(s *session.Session) (*Ticket, error) { return q.joinPermits(ctx, s, weight, size) })
}

// TryPermits is JoinPermits only if that is granted at once. Otherwise the error is [ErrBusy]: one linearizable read,
// which writes nothing, and one transaction if there were enough permits. If another ticket takes the permits in
// between, this one leaves the queue again, which is one transaction more.
func (q *Queue) TryPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	return q.acquire(ctx, func(s *session.Session) (*Ticket, error) {
		before, err := q.current(ctx, s, weight, size)
		if err != nil {
			return nil, err
		}
		// A ticket that joins now would be behind all of them.
		if v, _, _ := before.decide(q.space, entry{revision: math.MaxInt64}, weight); v != granted {
			return nil, ErrBusy
		}
		t, err := q.joinPermits(ctx, s, weight, size)
		if err != nil {
			return nil, err
		}
		return t, grantedOrLeave(ctx, t.parts)
	})
}

func (q *Queue) acquire(ctx context.Context, attempt func(*session.Session) (*Ticket, error)) (t *Ticket, err error) {
	if err = q.checkLabel(); err == nil {
		t, err = withSession(ctx, q.source, attempt)
	}
	return t, q.failed(ctx, err)
}

func (q *Queue) joinPermits(ctx context.Context, s *session.Session, weight, size int64) (*Ticket, error) {
	if weight < 1 || size < 1 {
		panic("etcdlock: permits, and the size of a semaphore, must be positive")
	}
	if weight > size {
		// It may have been resized. If not, nothing must be written: a ticket that takes more
		// than there is would hold up those behind it.
		if _, err := q.current(ctx, s, weight, size); err != nil {
			return nil, err
		}
	}
	p, strategy := q.newPart(s, permit, q.value(ctx, s, false), weight), &permits{weight: weight, size: size}
	p.strategy = strategy
	parts := []*part{p}
	keysOf(parts).Claim()
	folder := q.space.sizes().all()
	record := clientv3.OpTxn(
		[]clientv3.Cmp{folder.vacant()},
		[]clientv3.Op{clientv3.OpPut(q.space.sizeKey(size), agreement{Slots: q.options.Slots}.value())}, nil)
	response, seen, err := create(ctx, parts, append([]clientv3.Op{record, folder.get()}, p.start(joinLimit)...))
	if err != nil {
		return nil, err
	}
	p.seen, p.verdict = seen, askFurther
	agreed := int64(0)
	if response != nil {
		if agreed, err = q.agree(response.Responses[2].GetResponseRange().Kvs, size); err == nil && len(response.Responses) > 3 {
			if queue := response.Responses[3].GetResponseRange(); !queue.More {
				err = strategy.learn(p, snapshotOf(q.space, entriesOf(queue.Kvs), seen, size))
			}
		}
	}
	if err == nil && agreed == 0 { // the ticket was found again, or another program's key is in the folder
		if err = q.setSize(ctx, s, size, true); err == nil {
			_, err = q.current(ctx, s, 1, size)
		}
	}
	if err != nil {
		// Now rather than in the background: it takes permits from others, and keeps the size from being forgotten.
		_ = keysOf(parts).Leave(ctx)
		return nil, err
	}
	return newTicket(p), nil
}

// current reads the queue. It returns a SizeError if the size is not the one agreed on, or less than weight.
func (q *Queue) current(ctx context.Context, s *session.Session, weight, size int64) (permitSnapshot, error) {
	snapshot, folder, err := q.snapshot(ctx, s, size, 0, false)
	if err == nil {
		_, err = q.agree(folder, size)
	}
	return snapshot, cmp.Or(err, snapshot.fits(weight))
}

// snapshot reads the folder of the size, and the tickets up to a revision, 0 for all. The size is the one given if none
// is there.
func (q *Queue) snapshot(ctx context.Context, s *session.Session, size, upTo int64, local bool) (c permitSnapshot, folder []*mvccpb.KeyValue, err error) {
	keys := append(permit.readOptions(local), clientv3.WithMaxCreateRev(upTo))
	answer, err := s.Link().Read(ctx, q.space.sizes().all().get(Shared.readOptions(local)...), q.space.all().get(keys...))
	if err != nil {
		return permitSnapshot{}, nil, err
	}
	folder = answer.Responses[0].GetResponseRange().Kvs
	all := append(entriesOf(folder), entriesOf(answer.Responses[1].GetResponseRange().Kvs)...)
	return snapshotOf(q.space, all, answer.Header.Revision, size), folder, nil
}

// look reads the size and the tickets up to p.
func (s *permits) look(ctx context.Context, p *part, since wakeup) error {
	var snapshot permitSnapshot
	_, err := p.asOf(max(since.revision, p.me.revision), func(local bool) (_ int64, err error) {
		snapshot, _, err = p.queue.snapshot(ctx, p.session, s.size, p.me.revision, local)
		return snapshot.revision, err
	})
	if err != nil {
		return err
	}
	return s.learn(p, snapshot)
}

// learn records what a snapshot means for p. The error is a SizeError, if p wants more than there is.
func (s *permits) learn(p *part, snapshot permitSnapshot) error {
	p.seen, s.size = snapshot.revision, snapshot.size
	if err := snapshot.fits(s.weight); err != nil {
		return err
	}
	p.verdict, p.nearest, s.ahead = snapshot.decide(p.queue.space, p.me, s.weight)
	return nil
}

func (s *permits) firstLook(ctx context.Context, p *part) error { return inOrder{}.firstLook(ctx, p) }

// blocker is a put or the deletion of the predecessor, or the deletion of any ticket ahead, or of the size.
func (s *permits) blocker(p *part, _ []*part) blocker {
	nearest, ahead := p.nearest, s.ahead
	unchanged := func(ctx context.Context, minRevision int64) (bool, int64, error) {
		err := s.look(ctx, p, wakeup{revision: minRevision})
		return err == nil && p.verdict == blocked && p.nearest == nearest && (s.ahead == nil) == (ahead == nil), p.seen, err
	}
	b := blocker{
		span:    span{first: nearest.key},
		puts:    true,
		endedBy: func(e *clientv3.Event) bool { return e.Kv.ModRevision > nearest.revision },
		exists:  unchanged,
		recheck: unchanged,
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
	return p.set(ctx, p.key.Value)
}
