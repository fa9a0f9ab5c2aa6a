package etcdlock

import (
	"context"
	"sync"
)

// lifetime is how long a hold lasts, and why it ended. Its context costs more than the rest of a
// hold, so it is made only when it is asked for.
type lifetime struct {
	outer interface { // ends the hold when it ends: a session, or a hold that has been entered again
		Err() error
		Context() context.Context
	}

	mu     sync.Mutex
	reason error           // of the end; nil before
	ctx    context.Context // nil until it is asked for
	cancel context.CancelCauseFunc
	detach func() bool // ctx from outer
}

// end ends it. The first reason counts.
func (l *lifetime) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return
	}
	l.reason = reason
	if l.ctx != nil {
		l.detach()
		l.cancel(reason)
	}
}

// ended returns the reason of the end, as far as it has been noticed, or nil.
func (l *lifetime) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// look is ended, and notices the end of outer, which compares its deadline with the clock.
func (l *lifetime) look() error {
	if l.ended() == nil {
		if err := l.outer.Err(); err != nil {
			l.end(err)
		}
	}
	return l.ended()
}

// made returns the context if there is one, or nil.
func (l *lifetime) made() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// make returns a context with these values that ends with l.
func (l *lifetime) make(values context.Context) context.Context {
	// Not with mu held: a loss that is noticed here is logged, and the reader of the log may ask the hold.
	reason := l.outer.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(values))
		if l.reason == nil {
			l.reason = reason // rather than a moment later
		}
		if l.reason != nil {
			l.cancel(l.reason)
		} else {
			l.detach = context.AfterFunc(l.outer.Context(), func() { l.end(l.outer.Err()) })
		}
	}
	return l.ctx
}
