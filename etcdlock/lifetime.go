package etcdlock

import (
	"context"
	"sync"
)

// lifetime is how long a hold lasts, and why it ended. Its context costs more than all the rest
// of a hold, so it is made when somebody asks for it.
type lifetime struct {
	mu     sync.Mutex
	reason error           // that it ended; nil before
	ctx    context.Context // nil until it is asked for
	cancel context.CancelCauseFunc
	detach func() bool // ctx from what the hold depends on
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

// ended returns why it did, as far as has been noticed, or nil.
func (l *lifetime) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// context returns a context that ends with it. The first time it takes what begin tells: the context
// whose values it has, the one whose end ends it, and what tells the reason then.
func (l *lifetime) context(begin func() (values, outer context.Context, why func() error)) context.Context {
	if made := l.made(); made != nil {
		return made
	}
	values, outer, why := begin()
	// A reason is for good, and one that comes up now is told by outer. It is not asked for with mu
	// held: it may be found out here, and then the session writes it to a log that may ask the hold.
	reason := why()
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
			l.detach = context.AfterFunc(outer, func() { l.end(why()) })
		}
	}
	return l.ctx
}

// made returns the context if there is one, or nil.
func (l *lifetime) made() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}
