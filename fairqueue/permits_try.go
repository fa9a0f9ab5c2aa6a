package fairqueue

import (
	"context"
	"errors"
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// TryPermits is JoinPermits only if that is granted at once. Otherwise the error is
// [ErrBusy], with nothing written: one linearizable read, and one transaction if there was
// room; both again if somebody joined in between. If that happens twice, it joins whoever else
// does, which is one transaction more, and if it comes too late then, it leaves, which is another.
func (q *Queue) TryPermits(ctx context.Context, weight, size int64) (*Ticket, error) {
	if err := q.admit(permit, joinOptions{}); err != nil {
		return ticketOr(nil, q, err)
	}
	t, err := withSession(ctx, q.source, func(s *session.Session) (*Ticket, error) {
		for range 2 {
			at, err := q.room(ctx, s, weight, size)
			if err != nil {
				return nil, err
			}
			all := q.space.all()
			t, err := q.joinPermits(ctx, s, weight, size,
				clientv3.Compare(clientv3.CreateRevision(all.first), "<", at+1).WithRange(all.end))
			if !errors.Is(err, ErrBusy) {
				return t, err
			}
		}
		return q.joinPermitsOrLeave(ctx, s, weight, size)
	})
	return ticketOr(t, q, err)
}

// joinPermitsOrLeave tries where others come and go all the time, so that it cannot be a condition
// that nobody does. Only if there is no room any more does it write for nothing.
func (q *Queue) joinPermitsOrLeave(ctx context.Context, s *session.Session, weight, size int64) (*Ticket, error) {
	t, err := q.joinPermits(ctx, s, weight, size)
	if err != nil {
		return nil, err
	}
	if t.verdict == askFurther {
		if err := t.count(ctx, t.me.revision); err != nil {
			t.abandon()
			return nil, err
		}
	}
	switch t.verdict {
	case granted:
		return t, nil
	case tooHeavy:
		t.abandon()
		return nil, t.permit.tooHeavy()
	}
	if err := leave(ctx, []*Ticket{t}); err != nil {
		return nil, err
	}
	return nil, ErrBusy
}

// room returns ErrBusy if there is none, and otherwise the revision at which there was.
func (q *Queue) room(ctx context.Context, s *session.Session, weight, size int64) (at int64, err error) {
	all, agreed := q.space.all(), q.space.sizes().all()
	var answer *clientv3.TxnResponse
	err = s.Link().Call(ctx, func(ctx context.Context) (err error) {
		answer, err = s.Client().Txn(ctx).Then(
			clientv3.OpGet(agreed.first, clientv3.WithRange(agreed.end)),
			clientv3.OpGet(all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly())).Commit()
		return err
	})
	if err == nil {
		err = q.agree(answer.Responses[0].GetResponseRange().Kvs, size)
	}
	if err != nil {
		return 0, err
	}
	at = answer.Header.Revision
	c := censusOf(q.space, entriesOf(answer.Responses[1].GetResponseRange().Kvs), at, size)
	// One who comes now would be behind all of them.
	switch v, _, _ := q.space.count(entry{revision: math.MaxInt64}, weight, c); v {
	case granted:
		return at, nil
	case tooHeavy:
		return 0, &SizeError{Asked: weight, Agreed: c.size, Weight: true}
	}
	return 0, ErrBusy
}
