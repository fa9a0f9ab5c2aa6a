package session

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fly makes one request of all of batch, for as long as the most patient of them would wait. It goes
// on when those who wait for it have given up: some of them may not have.
func (r *route) fly(batch []*passenger, number int64) {
	s := r.session
	defer r.land(number)
	answers := make([]*clientv3.TxnResponse, len(batch))
	limit, stop := impatience(batch)
	defer stop()
	timedOut, err := attempt(context.Background(), s.ctx, limit, func(ctx context.Context) (err error) {
		if len(batch) == 1 {
			answers[0], err = s.commit(ctx, batch[0].Transaction)
			return err
		}
		answers, err = r.commitAll(ctx, batch)
		return err
	})
	again := len(batch) > 1 && refused(err)
	if len(batch) > 1 && IsAnswer(err, rpctypes.ErrTooManyOps) {
		if r.reads {
			r.narrow(sum(batch))
		} else {
			r.allow(len(batch) / 2)
		}
	}
	for i, m := range batch {
		o := outcome{err: err, timedOut: timedOut, again: again}
		if err == nil {
			o.answer = answers[i]
		}
		m.hear(o)
	}
}

// impatience returns the longest limit of batch, and sees to it that nobody waits much longer than the
// own one: a fellow's may be longer, and a request may take no notice of its end.
func impatience(batch []*passenger) (longest time.Duration, stop func()) {
	timers := make(map[time.Duration]*time.Timer)
	for _, m := range batch {
		longest = max(longest, m.limit)
		if timers[m.limit] != nil {
			continue
		}
		timers[m.limit] = time.AfterFunc(m.limit+overdue, func() {
			for _, late := range batch {
				if late.limit == m.limit {
					late.hear(outcome{err: context.DeadlineExceeded, timedOut: true})
				}
			}
		})
	}
	return longest, func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// commitAll makes one request of several transactions, and a second if one of those that were
// expected to succeed does not, or one of their shortcuts, or etcd has a lower limit than usual.
func (r *route) commitAll(ctx context.Context, passengers []*passenger) ([]*clientv3.TxnResponse, error) {
	s, room := r.session, operationLimit
	if !r.reads { // which are never more than that
		room = r.room()
	}
	b := together(passengers, room, r.dares(passengers))
	answer, err := s.commit(ctx, b.transaction())
	tooMany := len(b.conditions) > 0 && IsAnswer(err, rpctypes.ErrTooManyOps)
	if tooMany {
		r.narrow(room)
	}
	if b.hasty && err == nil {
		r.learn(answer.Succeeded)
	}
	if tooMany || err == nil && !answer.Succeeded {
		b = together(passengers, 0, false)
		answer, err = s.commit(ctx, b.transaction())
	}
	if err != nil {
		return nil, err
	}
	return b.answers(answer), nil
}

func sum(batch []*passenger) (operations int) {
	for _, m := range batch {
		operations += len(m.Then)
	}
	return operations
}

func (r *route) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operations
}

// narrow and allow are for an etcd that was started with another limit of operations.
func (r *route) narrow(tooMany int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = min(r.operations, max(tooMany/2, 1))
}

func (r *route) allow(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = min(r.limit, limit)
}
