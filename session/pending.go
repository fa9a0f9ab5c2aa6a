package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lateLimit is how long an attempt goes on that its caller has left. Within it a slow etcd answers, and
// nothing is in doubt.
const lateLimit = time.Second

// pending is one attempt at a transaction: it waits to be sent, or is in flight.
type pending struct {
	Transaction
	moment  moment // of the epoch when the attempt began
	doubts  int    // attempts before that were not answered
	session *Session
	limit   time.Duration
	began   time.Time
	request *request // nil while it waits; guarded by the coalescer

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
		defer p.session.settled(1)
		if p.session.ctx.Err() == nil {
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
	p.session.unsettled(1)
	p.expiry = time.AfterFunc(lateLimit, func() { p.deliver(outcome{err: unsure{context.DeadlineExceeded}}) })
	return true
}

// wait returns the outcome of p, or why nothing waits for it any more.
func (c *coalescer) wait(ctx context.Context, p *pending) outcome {
	over := ctx.Done()
	var expired <-chan time.Time
	for {
		select {
		case <-p.done:
			return p.outcome
		case <-over:
			left := grace - time.Since(p.began)
			if !p.Grace || left <= 0 {
				return c.leave(p, ctx.Err())
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			over, expired = nil, timer.C
		case <-expired:
			return c.leave(p, ctx.Err())
		case <-c.session.ctx.Done():
			err := context.Cause(c.session.ctx)
			if c.withdraw(p) {
				return outcome{err: unsent{err}}
			}
			return outcome{err: unsure{err}}
		}
	}
}

// leave ends the caller's wait because of err.
func (c *coalescer) leave(p *pending, err error) outcome {
	switch {
	case c.withdraw(p):
		return outcome{err: unsent{err}}
	case c.reads:
		if p.request.wanted.Add(-1) == 0 {
			p.request.cancel()
		}
		return outcome{err: unsure{err}}
	case p.Late == nil:
		return outcome{err: unsure{err}}
	case p.abandon():
		return outcome{err: inFlight{err}}
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

// unsent is the error of a request that etcd never got.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// unsure is the error of a request that may have taken effect, or may yet, whatever the error itself says.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// inFlight is the error of a transaction whose outcome Late is going to be told.
type inFlight struct{ error }

func (f inFlight) Unwrap() error { return f.error }

// InFlight reports whether err is that of a transaction whose outcome its Late is going to be told.
func InFlight(err error) bool { return errors.As(err, new(inFlight)) }
