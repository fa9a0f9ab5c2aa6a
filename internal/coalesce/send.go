package coalesce

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// errOther is the error of a request that did nothing, since the conditions of some transaction did not hold.
var errOther = request.Unsent(errors.New("another transaction did not succeed"))

// sendAlone makes a request of p alone, in the goroutine of its caller. So it ends with the caller's context: to
// wait for another goroutine, as shared requests do, costs a tenth of a round trip.
func (q *Queue) sendAlone(ctx context.Context, p *pending, limit time.Duration) (o Outcome) {
	if err := ctx.Err(); err != nil {
		return Outcome{Err: request.Unsent(err)}
	}
	o.TimedOut, o.Err = request.Attempt(ctx, q.ctx, limit, func(ctx context.Context) (err error) {
		o.Answer, err = q.send(ctx, p.conditions(), p.Then, p.Else)
		return err
	})
	if request.Doubtful(o.Err) {
		o.Unanswered = 1
	}
	return o
}

// sendShared makes the request r, and delivers its outcome to each.
func (q *Queue) sendShared(r *sending) {
	var whole *clientv3.TxnResponse
	timedOut, err := request.Attempt(context.Background(), q.ctx, request.FirstAttempt, func(ctx context.Context) (err error) {
		conditions, operations := combine(r.carry)
		whole, err = q.send(ctx, conditions, operations, nil)
		return err
	})
	several := len(r.carry) > 1
	if several && (request.IsAnswer(err, rpctypes.ErrTooManyOps) || request.IsAnswer(err, rpctypes.ErrRequestTooLarge)) {
		q.mu.Lock()
		q.limit = min(q.limit, len(r.carry)/2)
		q.mu.Unlock()
	}
	if several && err == nil && !whole.Succeeded {
		err = errOther
	}
	o := Outcome{Err: err, TimedOut: timedOut, refused: several && request.Refused(err)}
	if request.Doubtful(err) {
		o.Unanswered = 1
	}
	for _, p := range r.carry {
		if err == nil {
			n := min(len(p.Then), len(whole.Responses)) // none if it did not succeed
			o.Answer = &clientv3.TxnResponse{Header: whole.Header, Succeeded: whole.Succeeded, Responses: whole.Responses[:n:n]}
			whole.Responses = whole.Responses[n:]
		}
		q.deliver(p, o)
	}
	q.settle(r)
}

// deliver reports the outcome to the caller, or to Late if the caller has given up.
func (q *Queue) deliver(p *pending, o Outcome) {
	q.mu.Lock()
	p.outcome = o
	close(p.done)
	abandoned := p.abandoned
	q.mu.Unlock()
	if !abandoned {
		return
	}
	if q.ctx.Err() == nil {
		p.Late(o.Answer, o.Err)
	}
	q.abandoned(-1)
}

// wait returns the outcome of p, or why nothing waits for it any more.
func (q *Queue) wait(ctx context.Context, p *pending) Outcome {
	select {
	case <-p.done:
		return p.outcome
	case <-ctx.Done():
		return q.giveUp(p, ctx.Err())
	case <-q.ctx.Done():
		return q.giveUp(p, context.Cause(q.ctx))
	}
}

// giveUp ends the caller's wait because of err.
func (q *Queue) giveUp(p *pending, err error) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, p); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return Outcome{Err: request.Unsent(err)}
	}
	select {
	case <-p.done:
		return p.outcome
	default:
	}
	if p.Late == nil {
		return Outcome{Err: request.Unsure(err), Unanswered: 1}
	}
	p.abandoned = true
	q.abandoned(1)
	return Outcome{Err: request.InFlight(err)}
}
