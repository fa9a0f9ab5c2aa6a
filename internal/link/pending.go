package link

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// lateLimit is how long an attempt goes on that its caller has left. Within it a slow etcd answers, and
// nothing is in doubt.
const lateLimit = time.Second

// pending is one attempt at a transaction: it waits to be sent, or is in flight.
type pending struct {
	Transaction
	moment  moment // of the epoch when the attempt began
	doubts  int    // attempts before that were not answered
	link    *Link
	limit   time.Duration
	request *sending // nil while it waits; guarded by the coalescer

	done chan struct{} // closed when the outcome is there

	mu        sync.Mutex
	delivered bool
	outcome
	abandoned bool // by its caller, so that the outcome is for Late
	expiry    *time.Timer
}

type outcome struct {
	answer   *clientv3.TxnResponse
	err      error
	timedOut bool
	again    bool // it has to be sent alone
}

// conditions of p, that of its epoch included. However often the request is made, and by whatever time, that is the
// epoch in which the attempt began: its caller may have left since, and the doubt have been ended.
func (p *pending) conditions() []clientv3.Cmp {
	if p.moment.epoch == nil {
		return p.If
	}
	return append(p.If[:len(p.If):len(p.If)], p.moment.condition())
}

// deliver tells the caller the outcome, or Late if the caller has left. The first outcome counts.
func (p *pending) deliver(o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delivered {
		return
	}
	p.delivered, p.outcome = true, o
	close(p.done)
	if p.abandoned {
		p.expiry.Stop()
		defer p.link.settled(1)
		if p.link.ctx.Err() == nil {
			p.Late(o.answer, p.doubts, o.err)
		}
	}
}

// abandon leaves the outcome to Late. It reports whether that is not too late.
func (p *pending) abandon() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delivered {
		return false
	}
	p.abandoned = true
	p.link.unsettled(1)
	p.expiry = time.AfterFunc(lateLimit, func() { p.deliver(outcome{err: request.Unsure(context.DeadlineExceeded)}) })
	return true
}

// wait returns the outcome of p, or why nothing waits for it any more.
func (c *coalescer) wait(ctx context.Context, p *pending) outcome {
	select {
	case <-p.done:
		return p.outcome
	case <-ctx.Done():
		return c.leave(p, ctx.Err())
	case <-c.link.ctx.Done():
		err := context.Cause(c.link.ctx)
		if c.withdraw(p) {
			return outcome{err: request.Unsent(err)}
		}
		return outcome{err: request.Unsure(err)}
	}
}

// leave ends the caller's wait because of err.
func (c *coalescer) leave(p *pending, err error) outcome {
	switch {
	case c.withdraw(p):
		return outcome{err: request.Unsent(err)}
	case c.reads:
		if p.request.wanted.Add(-1) == 0 {
			p.request.cancel()
		}
		return outcome{err: request.Unsure(err)}
	case p.Late == nil:
		return outcome{err: request.Unsure(err)}
	case p.abandon():
		return outcome{err: request.InFlight(err)}
	}
	return p.outcome // which came at the same moment
}

// withdraw reports whether p has not been sent, and will not be.
func (c *coalescer) withdraw(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, p)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.count(p, -1)
	}
	return i >= 0
}
