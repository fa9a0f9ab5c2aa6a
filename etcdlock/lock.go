package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// claim is what a hold stands on: a ticket, or several that stand and fall together.
type claim interface {
	Key() string
	Revision() int64
	Session() *session.Session
	Guards() []clientv3.Cmp
	Granted() bool
	Wait(ctx context.Context) error
	Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool)
	Lost(ctx context.Context) error
	Leave(ctx context.Context) error
	Linger(ctx context.Context, d time.Duration) error
}

// cover is a name that a hold covers.
type cover struct {
	name   string
	prefix string // of its queue; empty if the hold only goes by that name
	shared bool
}

// lock is what all primitives have in common. The zero value is not usable.
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

// withoutHooks returns the lock without what happens once for each hold of it: hooks and the minimum time.
func (l *lock) withoutHooks() *lock {
	without := *l
	without.opts.hooks, without.opts.minHold = nil, 0
	return &without
}

// acquire joins and waits.
func (l *lock) acquire(ctx context.Context, op string, join func(context.Context) (claim, error)) (*Hold, error) {
	h, err := l.take(ctx, join)
	if err != nil {
		return nil, failed(op, l.name, err)
	}
	return h, nil
}

func (l *lock) take(ctx context.Context, join func(context.Context) (claim, error)) (*Hold, error) {
	l.ready(ctx)
	if l.err != nil {
		return nil, l.err
	}
	var began time.Time
	if len(l.opts.hooks) > 0 {
		began = time.Now()
	}
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

// ticketClaim keeps a nil ticket from becoming a claim that is not nil.
func ticketClaim(t *fairqueue.Ticket, err error) (claim, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

func groupClaim(g *fairqueue.Group, err error) (claim, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}
