package etcdlock

import (
	"context"
	"errors"

	"github.com/etcdlock/locks/fairqueue"
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
	kind   string // one of those below
	name   string
	source session.Source
	covers []cover
	opts   options
	err    error // of the name
}

const (
	kindMutex    = "mutex"
	kindRead     = "read"
	kindWrite    = "write"
	kindPermit   = "permit"
	kindMulti    = "multi"
	kindElection = "election"
)

func newLock(src session.Source, o options, kind, name string) (l lock, prefix string) {
	prefix, err := o.prefix(name)
	covers := []cover{{name, prefix, kind == kindRead}}
	return lock{kind: kind, name: name, source: src, covers: covers, opts: o, err: err}, prefix
}

// Name returns the name given to the constructor.
func (l *lock) Name() string { return l.name }

// acquire takes the lock with a ticket, which join gets.
func (l *lock) acquire(ctx context.Context, op string, join func(context.Context) (*fairqueue.Ticket, error)) (*Hold, error) {
	return l.acquireClaim(ctx, op, func(ctx context.Context) (claim, error) {
		t, err := join(ctx)
		return &ticketClaim{Ticket: t}, err
	})
}

// acquireClaim takes the lock with a claim, and binds a hold to it.
func (l *lock) acquireClaim(ctx context.Context, op string, join func(context.Context) (claim, error)) (*Hold, error) {
	l.ready(ctx)
	a := l.attempt(ctx)
	c, err := l.wait(ctx, a, join)
	if err != nil {
		err = failed(op, l.name, err)
		a.failed(c, err)
		return nil, err
	}
	h := newHold(ctx, l, c)
	a.granted(h)
	return h, nil
}

// wait joins and waits for the grant.
func (l *lock) wait(ctx context.Context, a *attempt, join func(context.Context) (claim, error)) (claim, error) {
	if l.err != nil {
		return nil, l.err
	}
	if l.wouldUpgrade(ctx) {
		return nil, ErrUpgrade
	}
	c, err := join(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Granted() {
		a.waiting(c)
	}
	err = c.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = explain(c, err)
	}
	return c, err
}

// single is a lock of one queue.
type single struct {
	lock
	queue *fairqueue.Queue
	mode  fairqueue.Mode
}

func newSingle(src session.Source, o options, kind, name string) single {
	l, prefix := newLock(src, o, kind, name)
	s := single{lock: l, queue: fairqueue.NewWith(src, prefix, o.queue), mode: fairqueue.Exclusive}
	if kind == kindRead {
		s.mode = fairqueue.Shared
	}
	return s
}

func (s *single) join(ctx context.Context) (*fairqueue.Ticket, error) {
	return s.queue.Join(ctx, s.mode)
}

func (s *single) tryJoin(ctx context.Context) (*fairqueue.Ticket, error) {
	return s.queue.TryJoin(ctx, s.mode)
}

func (s *single) place() fairqueue.Place { return fairqueue.Place{Queue: s.queue, Mode: s.mode} }
