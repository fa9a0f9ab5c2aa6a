package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// localOptions are what a Mutex does without etcd. The zero value is nothing.
type localOptions struct {
	bound  time.Duration // of an ownership that is handed on
	grants int
	idle   time.Duration // for which it is kept
}

func (o localOptions) handsOn() bool { return o.grants > 0 }

// line is the goroutines that share a Mutex value, and what their process owns. It holds to:
//
//  1. At most one ownership is current, and at most one place has it.
//  2. Somebody is in line in etcd for those who wait, or an ownership is current that will
//     be handed on or given back.
type line struct {
	queue *fairqueue.Queue
	localOptions

	mu      sync.Mutex
	waiting []*place      // in memory
	spare   chan struct{} // for the next place, so that a hand-over need not make one; may be nil
	current *ownership    // nil: none
	stop    func()        // gives up the place in etcd's line; nil: there is none

	inLine *fairqueue.Ticket // of that place; nil: none yet
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

// lock takes a place, at the end of the line.
func (l *line) lock(ctx context.Context) (claim, error) {
	l.mu.Lock()
	if p := l.takeIdle(ctx); p != nil {
		l.mu.Unlock()
		return p, nil
	}
	if !l.handsOn() {
		l.mu.Unlock()
		t, err := l.queue.Join(ctx, fairqueue.Exclusive)
		if err != nil {
			return nil, err
		}
		return &place{line: l, ticket: t}, nil
	}
	defer l.mu.Unlock()
	p := l.stand(ctx)
	l.join()
	return p, nil
}

func (l *line) tryLock(ctx context.Context) (claim, error) {
	l.mu.Lock()
	if p := l.takeIdle(ctx); p != nil {
		l.mu.Unlock()
		return p, nil
	}
	busy := l.current != nil || len(l.waiting) > 0
	l.mu.Unlock()
	if busy {
		return nil, ErrBusy
	}
	t, err := l.queue.TryJoin(ctx, fairqueue.Exclusive)
	if err != nil {
		return nil, err
	}
	return &place{line: l, ticket: t}, nil
}

// join sees to it that somebody is in line in etcd if that is needed. It is called with mu held.
func (l *line) join() {
	if len(l.waiting) == 0 || l.stop != nil || l.current != nil {
		return
	}
	// In line for whoever waits, so not on the context of one of them; it ends when nobody
	// waits any more.
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	first := l.waiting[0]
	go func() { // ends with the grant, an error, or stop
		defer cancel()
		t, err := l.queue.Join(ctx, fairqueue.Exclusive)
		if err == nil {
			l.mu.Lock()
			l.inLine = t
			l.mu.Unlock()
			err = t.Wait(ctx)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stop, l.inLine = nil, nil
		switch {
		case err == nil:
			o := l.begin(t)
			o.held = true
			give := o
			// The answer may be older than the call of any but the first.
			if len(l.waiting) == 0 || l.waiting[0] == first || l.confirm(ctx, o) {
				give = l.next(o)
			} else {
				l.giveUp(o)
			}
			l.mu.Unlock()
			_ = give.back(context.Background()) // if nobody waits any more
			l.mu.Lock()
		case ctx.Err() != nil:
			l.join() // for those who have come since
		case errors.Is(err, context.DeadlineExceeded):
			// The Keeper has given up, as it does for those who have not said how long they wait.
			l.failThose(err, func(p *place) bool { return !p.limited })
			l.join()
		default:
			l.fail(err)
		}
	}()
}

// fail tells all who wait in memory. It is called with mu held.
func (l *line) fail(err error) { l.failThose(err, func(*place) bool { return true }) }

// failThose tells some. It is called with mu held.
func (l *line) failThose(err error, whom func(*place) bool) {
	l.waiting = slices.DeleteFunc(l.waiting, func(p *place) bool {
		if !whom(p) {
			return false
		}
		p.err = err
		p.ready <- struct{}{}
		return true
	})
	l.standDown()
}

// next says what becomes of o, which nobody holds: it goes to the one who has waited longest, it
// is kept, or it is to be given back in etcd, which is the caller's business then. It is called
// with mu held.
func (l *line) next(o *ownership) (giveBack *ownership) {
	o.held, o.hold = false, nil
	switch {
	case l.current != o:
		return o
	case len(l.waiting) > 0 && (o.grants == 0 || !l.spent(o)):
		p := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		p.take(o)
		p.ready <- struct{}{}
		l.standDown()
		return nil
	case len(l.waiting) == 0 && l.idle > 0 && !o.wanted:
		o.expiry.Reset(l.idle)
		o.guard.Reset(0) // listens from now on
		return nil
	}
	return l.giveUp(o)
}

// giveUp makes o, which nobody holds any more, one that is to be given back. It is called with mu held.
func (l *line) giveUp(o *ownership) (giveBack *ownership) {
	o.held, o.hold = false, nil
	if l.current == o {
		l.current = nil
		l.join()
	}
	return o
}

// spent reports whether the time and number are over for which o may be handed on.
func (l *line) spent(o *ownership) bool {
	return o.grants >= l.grants || time.Since(o.since) >= l.bound
}

// release ends what a place had of o.
func (l *line) release(ctx context.Context, o *ownership) error {
	over := o.ticket.Session().Err() // by the clock, as in look
	l.mu.Lock()
	if over != nil {
		l.lose(o, over)
	}
	stays := l.current == o && (len(l.waiting) > 0 && l.handsOn() || len(l.waiting) == 0 && l.idle > 0 && !o.wanted)
	give := o
	if stays && !l.confirm(ctx, o) {
		l.giveUp(o)
	} else {
		give = l.next(o)
	}
	lost := o.lost
	l.mu.Unlock()
	err := give.back(ctx)
	if lost != nil {
		return lost
	}
	return err
}

// lose ends o. Those who wait in memory have not lost anything if only the key is gone: then there
// is a new one for them. It is called with mu held.
func (l *line) lose(o *ownership, err error) {
	if o.lost == nil {
		o.lost = err
	}
	if o.hold != nil {
		o.hold.end(err)
	}
	o.end()
	if o.ticket.Session().Context().Err() == nil {
		go o.forget() // ends with its own time-out
	}
	if l.current != o {
		return
	}
	l.current = nil
	if o.ticket.Session().Context().Err() != nil {
		l.fail(err)
	} else {
		l.join()
	}
}
