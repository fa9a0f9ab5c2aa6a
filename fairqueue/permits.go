package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// A ticket for permits has a weight. It is granted when the weights of all ahead of it,
// waiting or not, and its own are no more than the size. As those ahead can only vanish,
// that stays true, and as those who wait count as well, nobody overtakes.
//
// So who owns can be told from the keys alone. What cannot is when: a ticket may come to
// own without that anything happened to it. Therefore the first in line that does not own
// watches all ahead of it, and every other one watches its predecessor, which says so with
// a put when it comes to own after having waited. After a reduction of the size one that has
// owned since before looks like one that waits. Whoever waits for it finds out at the next
// recheck that others ahead have left.

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

// permitState is what only tickets for permits have.
type permitState struct {
	weight int64
	size   int64    // last known
	ahead  []string // keys, if crowded
}

func (p *permitState) tooHeavy() error {
	return &SizeError{Asked: p.weight, Agreed: p.size, Weight: true}
}

// JoinPermits puts a ticket for weight permits of the given size's semaphore at the end of
// the queue: one round trip, one raft entry. The first to come sets the size; who comes
// with another gets a [*SizeError], unless [Queue.Resize] has replaced it. If weight is more
// than the size, that error comes from here or, after a Resize, from Wait. Otherwise it is
// like [Queue.Join].
//
// The ticket's Wait costs one transaction more than others do if it has had to wait.
func (q *Queue) JoinPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	if err := q.admit(permit, joinOptions{}); err != nil {
		return ticketOr(nil, q, err)
	}
	t, err := withSession(ctx, q.source, func(s *session.Session) (*Ticket, error) {
		return q.joinPermits(ctx, s, weight, size)
	})
	return ticketOr(t, q, err)
}

func (q *Queue) joinPermits(ctx context.Context, s *session.Session, weight, size int64, conditions ...clientv3.Cmp) (*Ticket, error) {
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
	t := q.newTicket(s, permit, joinOptions{number: weight})
	t.permit = &permitState{weight: weight, size: size}
	agreed := q.space.sizes().all()
	record := clientv3.OpTxn(
		[]clientv3.Cmp{agreed.vacant()},
		[]clientv3.Op{clientv3.OpPut(q.space.sizeKey(size), agreement{Slots: q.numbered}.value())}, nil)
	response, seen, found, err := create(ctx, []*Ticket{t}, len(conditions) > 0, link.Transaction{
		If:   append(conditions, t.absent()),
		Then: []clientv3.Op{record, t.put(), clientv3.OpGet(agreed.first, clientv3.WithRange(agreed.end)), q.start},
	})
	if errors.Is(err, ErrBusy) && len(conditions) == 0 {
		err = ErrGone // nothing but its own key could be in the way
	}
	if err != nil {
		return nil, err
	}
	t.seen, t.verdict = seen, askFurther
	if len(conditions) > 0 {
		t.verdict = granted // as there was room and nobody came in between, whatever has happened since
	}
	var sizes []*mvccpb.KeyValue
	if !found {
		sizes = response.Responses[2].GetResponseRange().Kvs
		if queue := response.Responses[3].GetResponseRange(); !queue.More {
			t.reckon(censusOf(q.space, entriesOf(queue.Kvs), t.seen, size))
		}
	}
	if err := t.settle(ctx, sizes, size); err != nil {
		t.abandon()
		return nil, err
	}
	if t.verdict == tooHeavy {
		t.abandon()
		return nil, t.permit.tooHeavy()
	}
	return t, nil
}

// settle makes sure that a size is recorded, and that it agrees with the one given, after the join, which read
// sizes there, or was found again, so that it is not known what it read. The join has recorded the size, unless
// there is a stranger's key in the folder.
func (t *Ticket) settle(ctx context.Context, sizes []*mvccpb.KeyValue, size int64) error {
	if t.queue.space.recorded(sizes) != nil {
		return t.queue.agree(sizes, size)
	}
	if err := t.queue.setSize(ctx, t.session, size, true); err != nil {
		return err
	}
	weight := t.permit.weight
	if t.verdict == granted {
		weight = 1 // a reduction takes nothing away
	}
	return t.queue.fits(ctx, t.session, weight, size)
}

// fits returns a SizeError if the size is not the one agreed on, or less than weight.
func (q *Queue) fits(ctx context.Context, s *session.Session, weight, size int64) error {
	folder := q.space.sizes().all()
	var answer *clientv3.GetResponse
	err := s.Link().Call(ctx, func(ctx context.Context) (err error) {
		answer, err = s.Client().Get(ctx, folder.first, clientv3.WithRange(folder.end))
		return err
	})
	if err != nil {
		return err
	}
	if err := q.agree(answer.Kvs, size); err != nil {
		return err
	}
	if agreed := q.space.sizeIn(entriesOf(answer.Kvs), size); weight > agreed {
		return &SizeError{Asked: weight, Agreed: agreed, Weight: true}
	}
	return nil
}

// count asks how things stand, at revision least or later, as look does for others.
func (t *Ticket) count(ctx context.Context, least int64) error {
	local := true
	for limit := int64(joinLimit); ; {
		c, err := t.take(ctx, limit, local)
		switch {
		case err != nil:
			return err
		case c.revision < max(least, t.me.revision):
			if !local {
				return t.session.Link().WentBack(max(least, t.me.revision), c.revision)
			}
			local = false
			continue
		}
		if t.reckon(c); t.verdict != askFurther {
			return nil
		}
		if limit == 0 {
			panic("fairqueue: an unlimited answer was cut off")
		}
		limit = 0
	}
}

func (t *Ticket) reckon(c census) {
	v, predecessor, ahead := t.queue.space.count(t.me, t.permit.weight, c)
	t.seen = c.revision
	t.hear(v, predecessor)
	t.permit.size, t.permit.ahead = c.size, ahead
}

// take reads the head of the queue, its end as far as the ticket, and the size.
func (t *Ticket) take(ctx context.Context, limit int64, local bool) (census, error) {
	s := t.queue.space
	all, agreed := s.all(), s.sizes().all()
	sorted := func(order clientv3.SortOrder, limit int64) clientv3.Op {
		return clientv3.OpGet(all.first, append(permit.readOptions(local), clientv3.WithRange(all.end),
			clientv3.WithSort(clientv3.SortByCreateRevision, order),
			clientv3.WithMaxCreateRev(t.me.revision), clientv3.WithLimit(limit))...)
	}
	lists, revision, err := read(ctx, t.session,
		clientv3.OpGet(agreed.first, append(permit.readOptions(local), clientv3.WithRange(agreed.end))...),
		sorted(clientv3.SortAscend, limit),
		sorted(clientv3.SortDescend, min(limit, 3))) // with one to spare for a key of another kind
	if err != nil {
		return census{}, err
	}
	c := census{revision: revision, first: lists[1].entries, whole: !lists[1].more, last: lists[2].entries}
	c.size = s.sizeIn(lists[0].entries, t.permit.size)
	return c, nil
}

// permitObstacle is what a ticket for permits waits for: its predecessor's put or
// deletion, or the deletion of any ahead of it, or of the size.
func (t *Ticket) permitObstacle() obstacle {
	verdict, before := t.verdict, t.nearest
	o := obstacle{
		span: span{first: before.key},
		puts: true,
		ends: func(e *clientv3.Event) bool { return e.Kv.ModRevision > before.revision },
		stands: func(ctx context.Context, least int64) (bool, int64, error) {
			err := t.count(ctx, least)
			return err == nil && t.verdict == verdict && t.nearest == before, t.seen, err
		},
	}
	if verdict == crowded {
		o.span, o.puts = t.queue.space.all(), false
		o.ends = func(e *clientv3.Event) bool {
			key := string(e.Kv.Key)
			_, resized := t.queue.space.sizeOf(key)
			return resized || slices.Contains(t.permit.ahead, key)
		}
	}
	return o
}

// wakeNext lets the next in line know that t owns from now on, if that one may have seen t
// waiting.
func (t *Ticket) wakeNext(ctx context.Context) error {
	if t.mode != permit || t.seen == t.me.revision {
		return nil
	}
	return t.Set(ctx, t.value)
}
