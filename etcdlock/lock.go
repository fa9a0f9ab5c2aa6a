package etcdlock

import (
	"context"
	"errors"
	"time"

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
	kindMutex       = "mutex"
	kindRead        = "read"
	kindWrite       = "write"
	kindUpgradeable = "upgradeable"
	kindPermit      = "permit"
	kindMulti       = "multi"
	kindElection    = "election"
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
	a := attempt{lock: l, ctx: ctx}
	if len(l.opts.hooks) > 0 {
		a.began = time.Now()
	}
	if err := a.wait(join); err != nil {
		err = failed(op, l.name, err)
		a.failed(err)
		return nil, err
	}
	h := newHold(ctx, l, a.claim)
	a.granted(h)
	return h, nil
}

// attempt is one call of Lock.
type attempt struct {
	lock   *lock
	ctx    context.Context
	began  time.Time // zero: there are no hooks
	claim  claim     // nil: nothing has been in line
	queued bool      // it has been in line for a taken lock
}

// wait joins and waits for the grant.
func (a *attempt) wait(join func(context.Context) (claim, error)) error {
	switch {
	case a.lock.err != nil:
		return a.lock.err
	case a.lock.wouldUpgrade(a.ctx):
		return ErrUpgrade
	}
	c, err := join(a.ctx)
	if err != nil {
		return err
	}
	a.claim = c
	if t := c.ticket(); t == nil || !t.Granted() {
		a.waiting()
	}
	err = c.Wait(a.ctx)
	if errors.Is(err, context.DeadlineExceeded) && a.ctx.Err() != nil {
		err = explain(c, err)
	}
	return err
}

// single is a lock of one queue. Its mode is not that of permits and candidates.
type single struct {
	lock
	queue *fairqueue.Queue
	mode  fairqueue.Mode
}

func newSingle(src session.Source, o options, kind, name string) single {
	l, prefix := newLock(src, o, kind, name)
	s := single{lock: l, queue: fairqueue.New(src, prefix, o.queue), mode: fairqueue.Exclusive}
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
