package etcdlock

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// localOptions are those of WithLocalHandover and WithRetention. The zero value is neither.
type localOptions struct {
	bound  time.Duration // of an ownership that others wait for
	grants int           // of an ownership that others wait for; 0: it is given back at once
	idle   time.Duration // for which an ownership is kept; 0: none is
}

// line is where the goroutines that lock one Mutex wait for their turn. The claim that has the turn gets the
// lock for the process, the ownership, from etcd or from the claim before it.
//
//  1. At most one claim has the turn.
//  2. An ownership without a claim is kept, and given back after its time.
//  3. No grant rests on a ticket that was gone before the call began, except for longestTrust.
type line struct {
	single *single
	localOptions

	// turn is full while no claim has the turn: of the ownership that is kept, or nil if there is none. The runtime
	// serves the goroutines that wait to receive in the order in which they came.
	turn    chan *ownership
	waiting atomic.Int64 // claims that wait for their turn

	current atomic.Pointer[ownership]        // the latest, which may have ended
	ticket  atomic.Pointer[fairqueue.Ticket] // the latest of the process
}

// newLine returns nil if the options ask for nothing.
func newLine(s *single) *line {
	if s.opts.local == (localOptions{}) {
		return nil
	}
	if s.opts.minHold > 0 {
		panic("etcdlock: WithMinHold cannot be together with WithLocalHandover or WithRetention")
	}
	l := &line{single: s, localOptions: s.opts.local, turn: make(chan *ownership, 1)}
	l.turn <- nil
	return l
}

func (l *line) lock(ctx context.Context) (claim, error) {
	if !l.owns() {
		// Callers wait for a session at the same time, rather than each in its turn.
		if _, err := l.single.source.Session(ctx); err != nil {
			return nil, err
		}
	}
	c := &localClaim{line: l}
	select {
	case o := <-l.turn:
		return c, c.take(ctx, o, l.single.join)
	default:
		l.waiting.Add(1)
		c.waits = time.Now()
		return c, nil
	}
}

func (l *line) tryLock(ctx context.Context) (claim, error) {
	c := &localClaim{line: l}
	select {
	case o := <-l.turn:
		return c, c.take(ctx, o, l.single.tryJoin)
	default:
		return nil, ErrBusy
	}
}

// owns reports whether the process has the lock, as far as it has noticed.
func (l *line) owns() bool {
	o := l.current.Load()
	return o != nil && o.base.ended() == nil
}

// hand gives the turn, and o with it, to the claim that has waited longest. Without one o is kept, or given back.
func (l *line) hand(o *ownership) {
	l.turn <- o // does not block: only the claim with the turn, or what ends that, is here
	switch {
	case o == nil || l.waiting.Load() > 0:
	case o.keeps():
		o.expiry.Reset(l.idle)
		o.listen()
	default:
		l.drop(o)
	}
}

// drop gives o back if no claim has it.
func (l *line) drop(o *ownership) {
	select {
	case kept := <-l.turn:
		if kept != o {
			l.turn <- kept
			return
		}
		l.turn <- nil
		go o.base.discard() // ends with its own time-out
	default:
	}
}

// localClaim is the claim of one Lock of a line: it waits for its turn, and then in etcd's queue.
type localClaim struct {
	nestedClaim // of own
	line        *line
	waits       time.Time         // since when it waits for its turn; zero: it had it at once
	place       *fairqueue.Ticket // nil: it has none yet
	own         *ownership        // nil before the grant
}

// take is called with the turn, and with what came with it. The claim takes the ownership, or gets a ticket.
func (c *localClaim) take(ctx context.Context, o *ownership, join func(context.Context) (*fairqueue.Ticket, error)) error {
	if o != nil {
		if o.take(ctx, c.waits) {
			c.have(o)
			return nil
		}
		_ = o.base.unlock(ctx) // first: TryLock must not find the ticket of its own process in the way
	}
	t, err := join(ctx)
	if err != nil {
		c.line.hand(nil)
		return err
	}
	c.place = t
	c.line.ticket.Store(t)
	return nil
}

func (c *localClaim) have(o *ownership) {
	c.own, c.place, c.nestedClaim = o, o.ticket, nestedClaim{o.base.claim, o.base}
}

func (c *localClaim) ticket() *fairqueue.Ticket { return c.place }

func (c *localClaim) Wait(ctx context.Context) error {
	if !c.waits.IsZero() {
		if err := c.waitForTurn(ctx); err != nil {
			return err
		}
	}
	if c.own == nil {
		if err := c.place.Wait(ctx); err != nil {
			c.line.hand(nil)
			return err
		}
		c.have(c.line.begin(c.place))
	}
	err := cmp.Or(ctx.Err(), c.base.ended())
	if err != nil {
		_ = c.release(ctx) // err is returned
	}
	return err
}

func (c *localClaim) waitForTurn(ctx context.Context) error {
	l := c.line
	select {
	case o := <-l.turn:
		l.waiting.Add(-1)
		return c.take(ctx, o, l.single.join)
	case <-ctx.Done():
	}
	if l.waiting.Add(-1) == 0 {
		select {
		case o := <-l.turn: // perhaps handed on for this claim
			l.hand(o)
		default:
		}
	}
	return ctx.Err()
}

// Ahead counts the tickets in etcd's queue. In memory, others may be ahead besides.
func (c *localClaim) Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	t := cmp.Or(c.place, c.line.ticket.Load())
	switch {
	case t == nil:
		return fairqueue.Entry{}, 0, false
	case c.place == nil && c.line.owns():
		owner, ok = t.Self(ctx)
		return owner, 1, ok
	}
	return t.Ahead(ctx)
}

func (c *localClaim) release(ctx context.Context) error { return c.own.pass(ctx) }
