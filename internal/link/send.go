package link

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// sending is a request in flight.
type sending struct {
	sent   time.Time
	carry  []*pending
	ctx    context.Context // of the request alone
	cancel context.CancelFunc
	wanted atomic.Int32 // by how many callers
}

// sendAlone makes a request of p alone, in the goroutine of its caller. So it ends with the caller's context: to
// wait in another goroutine, as shared requests do, costs a tenth of a round trip.
func (c *coalescer) sendAlone(ctx context.Context, p *pending, r *sending) (o outcome) {
	o.timedOut, o.err = request.Attempt(ctx, c.link.ctx, p.limit, func(ctx context.Context) (err error) {
		o.answer, err = p.send(ctx)
		return err
	})
	c.answered(r)
	c.flush(false)
	return o
}

// send makes a request of p.
func (p *pending) send(ctx context.Context) (*clientv3.TxnResponse, error) {
	only := p.Transaction
	only.If = p.conditions()
	return p.link.send(ctx, only)
}

// start sends r in a goroutine of the session. If that is over, the callers find out by themselves.
func (c *coalescer) start(r *sending) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.spawn(func(context.Context) { c.send(r) }) {
		r.cancel()
	}
}

// send makes the request.
func (c *coalescer) send(r *sending) {
	defer r.cancel()
	var answers []*clientv3.TxnResponse
	timedOut, err := request.Attempt(r.ctx, c.link.ctx, r.carry[0].limit, func(ctx context.Context) (err error) {
		answers, err = c.sendAll(ctx, r.carry)
		return err
	})
	c.answered(r)
	again := len(r.carry) > 1 && request.Refused(err)
	if again && (request.IsAnswer(err, rpctypes.ErrTooManyOps) || request.IsAnswer(err, rpctypes.ErrRequestTooLarge)) {
		c.allowLess(r.carry)
	}
	for i, p := range r.carry {
		o := outcome{err: err, timedOut: timedOut, again: again}
		if err == nil {
			o.answer = answers[i]
		}
		p.deliver(o)
	}
	c.flush(false)
}

// sendAll makes one request, and a second if one of the transactions that were expected to succeed does not,
// or if etcd allows fewer operations than usual.
func (c *coalescer) sendAll(ctx context.Context, carry []*pending) ([]*clientv3.TxnResponse, error) {
	if len(carry) == 1 {
		answer, err := carry[0].send(ctx)
		return []*clientv3.TxnResponse{answer}, err
	}
	room := operationLimit
	if !c.reads { // which are never more than that
		c.mu.Lock()
		room = c.operations
		c.mu.Unlock()
	}
	b := together(carry, room)
	answer, err := c.link.send(ctx, b.transaction())
	tooMany := len(b.conditions) > 0 && request.IsAnswer(err, rpctypes.ErrTooManyOps)
	if tooMany {
		c.mu.Lock()
		c.operations = min(c.operations, max(room/2, 1))
		c.mu.Unlock()
	}
	if tooMany || err == nil && !answer.Succeeded {
		b = together(carry, 0)
		answer, err = c.link.send(ctx, b.transaction())
	}
	if err != nil {
		return nil, err
	}
	return b.answers(answer), nil
}
