package etcdlock

import (
	"context"
	"errors"

	"github.com/etcdlock/locks/session"
)

// cover is a name that a hold covers.
type cover struct {
	name   string
	prefix string // of its queue; empty if the hold only goes by that name
	shared bool
}

// lock is what all kinds have in common. The zero value is not usable.
type lock struct {
	name   string
	source session.Source
	covers []cover
	opts   options
	err    error // of the name
}

func newLock(src session.Source, o options, name string, shared bool) (l lock, prefix string) {
	prefix, err := o.prefix(name)
	return lock{name: name, source: src, covers: []cover{{name, prefix, shared}}, opts: o, err: err}, prefix
}

// Name returns the name given to the constructor.
func (l *lock) Name() string { return l.name }

// acquire joins, waits for the grant, and binds a hold to it.
func (l *lock) acquire(ctx context.Context, op string, join func(context.Context) (claim, error)) (h *Hold, err error) {
	l.ready(ctx)
	defer func() { err = failed(op, l.name, err) }()
	if l.err != nil {
		return nil, l.err
	}
	began := l.opts.timeForHooks()
	c, err := join(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Granted() {
		l.opts.waiting(l, c)
	}
	if err := c.Wait(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = explain(c, err)
		}
		return nil, err
	}
	return newHold(ctx, l, c, began), nil
}
