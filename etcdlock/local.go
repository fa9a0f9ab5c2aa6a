package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// localOptions are those of WithLocalHandover and WithRetention. The zero value is neither.
type localOptions struct {
	bound  time.Duration // of an ownership that is handed on
	grants int           // of an ownership that is handed on; 0: none is
	idle   time.Duration // for which an ownership is kept; 0: none is
}

// line is what a Mutex does in memory: the claims of its goroutines, and what the process owns in etcd.
//
//  1. At most one ownership is current, and at most one claim has it.
//  2. While claims wait in memory, a ticket is in etcd's queue for them, or an ownership is current
//     that will be handed on or given back.
//  3. No grant rests on a ticket that was gone before the call began, except for longestTrust.
type line struct {
	queue *fairqueue.Queue
	localOptions

	mu      sync.Mutex
	waiting []*localClaim // in memory
	current *ownership    // nil: none

	stop   func()            // ends await; nil: it does not run
	ticket *fairqueue.Ticket // of await; nil: none yet
}

// newLine returns nil if the options ask for nothing.
func newLine(q *fairqueue.Queue, o options) *line {
	if o.local == (localOptions{}) {
		return nil
	}
	if o.minHold > 0 {
		panic("etcdlock: WithMinHold cannot be together with WithLocalHandover or WithRetention")
	}
	return &line{queue: q, localOptions: o.local}
}

func (l *line) lock(ctx context.Context) (claim, error) {
	l.mu.Lock()
	kept := l.takeKept(ctx)
	if kept == nil && l.grants > 0 {
		defer l.mu.Unlock()
		_, limited := ctx.Deadline()
		c := &localClaim{line: l, granted: make(chan grant, 1), limited: limited}
		l.waiting = append(l.waiting, c)
		l.join()
		return c, nil
	}
	l.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	return l.claimOf(l.queue.Join(ctx, fairqueue.Exclusive))
}

func (l *line) tryLock(ctx context.Context) (claim, error) {
	l.mu.Lock()
	kept := l.takeKept(ctx)
	busy := l.current != nil || len(l.waiting) > 0
	l.mu.Unlock()
	switch {
	case kept != nil:
		return kept, nil
	case busy:
		return nil, ErrBusy
	}
	return l.claimOf(l.queue.TryJoin(ctx, fairqueue.Exclusive))
}

func (l *line) claimOf(t *fairqueue.Ticket, err error) (claim, error) {
	if err != nil {
		return nil, err
	}
	return &localClaim{Ticket: t, line: l}, nil
}

// join starts await if it is needed. It is called with mu held.
func (l *line) join() {
	if len(l.waiting) == 0 || l.stop != nil || l.current != nil {
		return
	}
	// Not on the context of one of the claims: it ends when none waits any more.
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	go l.await(ctx, l.waiting[0]) // ends with the grant, an error, or stop
}

// await waits in etcd's queue for the claims in memory, of which first was the first.
func (l *line) await(ctx context.Context, first *localClaim) {
	t, err := l.queue.Join(ctx, fairqueue.Exclusive)
	if err == nil {
		l.mu.Lock()
		l.ticket = t
		l.mu.Unlock()
		err = t.Wait(ctx)
	}
	l.mu.Lock()
	stop := l.stop
	l.ticket, l.stop = nil, nil
	var giveBack *ownership
	switch {
	case err == nil:
		o := l.begin(t)
		// The grant may be older than the call of any claim but the first.
		giveBack = l.next(o, len(l.waiting) > 0 && l.waiting[0] == first || l.useful(o) && l.confirm(ctx, o))
	case ctx.Err() != nil:
		l.join() // for claims that have come since
	case errors.Is(err, context.DeadlineExceeded):
		// The Keeper has given up, as it does for a caller that sets no limit of its own.
		l.fail(err, func(c *localClaim) bool { return !c.limited })
		l.join()
	default:
		l.fail(err, func(*localClaim) bool { return true })
	}
	l.mu.Unlock()
	stop()
	giveBack.discard()
}

// fail ends the waits of some claims in memory. It is called with mu held.
func (l *line) fail(err error, which func(*localClaim) bool) {
	l.waiting = slices.DeleteFunc(l.waiting, func(c *localClaim) bool {
		if which(c) {
			c.granted <- grant{err: err}
			return true
		}
		return false
	})
	l.standDown()
}

// standDown ends await if no claim waits. It is called with mu held.
func (l *line) standDown() {
	if len(l.waiting) == 0 && l.stop != nil {
		l.stop()
	}
}

// next takes o from its claim. It goes to the claim that has waited longest, or is kept, if it is confirmed
// that its ticket is there. Otherwise the caller has to give back what is returned, with mu not held. It is
// called with mu held.
func (l *line) next(o *ownership, confirmed bool) (giveBack *ownership) {
	o.held, o.hold = false, nil
	switch {
	case l.current != o:
		return o
	case confirmed && len(l.waiting) > 0 && (o.grants == 0 || !l.spent(o)):
		c := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		o.take()
		c.granted <- grant{own: o}
		l.standDown()
		return nil
	case confirmed && len(l.waiting) == 0 && l.keeps(o):
		o.expiry.Reset(l.idle)
		o.watch()
		return nil
	}
	l.current = nil
	l.join()
	return o
}

// spent reports whether the bounds are reached for which o may be handed on.
func (l *line) spent(o *ownership) bool {
	return o.grants >= l.grants || time.Since(o.since) >= l.bound
}

// keeps reports whether o may be kept if no claim waits.
func (l *line) keeps(o *ownership) bool { return l.idle > 0 && !o.wanted }

// useful reports whether a claim waits for o, or o may be kept.
func (l *line) useful(o *ownership) bool { return l.current == o && (len(l.waiting) > 0 || l.keeps(o)) }

// release is called when the hold of o has ended.
func (l *line) release(ctx context.Context, o *ownership) error {
	over := o.ticket.Session().Err() // not with mu held: it may be logged, and the reader of the log may ask the hold
	l.mu.Lock()
	if over != nil {
		l.lose(o, over)
	}
	giveBack := l.next(o, l.useful(o) && l.confirm(ctx, o))
	lost := o.lost
	l.mu.Unlock()
	err := giveBack.leave(ctx)
	return cmp.Or(lost, err)
}

// takeKept takes an ownership that is kept, if etcd still has it. It is called with mu held, and may unlock
// it meanwhile.
func (l *line) takeKept(ctx context.Context) *localClaim {
	o := l.current
	if o == nil {
		return nil
	}
	s := o.ticket.Session()
	if s.Context().Err() != nil {
		l.lose(o, s.Err()) // which gone is about to do
		return nil
	}
	if o.held || o.wanted {
		return nil
	}
	o.take() // before mu is unlocked
	l.mu.Unlock()
	err := s.Err() // may be logged, as in release
	l.mu.Lock()
	if err != nil {
		l.lose(o, err)
	} else if l.confirm(ctx, o) && o.lost == nil && !o.wanted {
		return &localClaim{Ticket: o.ticket, line: l, own: o}
	}
	go l.next(o, false).discard() // ends with its own time-out
	return nil
}

// drop gives o back if no claim has it.
func (l *line) drop(o *ownership) {
	var giveBack *ownership
	l.mu.Lock()
	if l.current == o && !o.held {
		giveBack = l.next(o, false)
	}
	l.mu.Unlock()
	giveBack.discard()
}

// lose ends o. If only the key is gone, claims in memory have lost nothing, and are in line again. It is called
// with mu held.
func (l *line) lose(o *ownership, err error) {
	if o.lost == nil {
		o.lost = err
	}
	if o.hold != nil {
		o.hold.end(err)
	}
	o.end()
	alive := o.ticket.Session().Context().Err() == nil
	if alive {
		go o.discard() // so that the name of its key is free again; ends with its own time-out
	}
	if l.current != o {
		return
	}
	l.current = nil
	if alive {
		l.join()
	} else {
		l.fail(err, func(*localClaim) bool { return true })
	}
}
