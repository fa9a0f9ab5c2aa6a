package etcdlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
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

	mu      sync.Mutex
	taken   bool // the turn is
	waiting []*localClaim
	current *ownership        // of the claim that has the turn; or it is kept; nil: none
	ticket  *fairqueue.Ticket // the last that the process got
}

// newLine returns nil if the options ask for nothing.
func newLine(s *single) *line {
	if s.opts.local == (localOptions{}) {
		return nil
	}
	if s.opts.minHold > 0 {
		panic("etcdlock: WithMinHold cannot be together with WithLocalHandover or WithRetention")
	}
	return &line{single: s, localOptions: s.opts.local}
}

func (l *line) lock(ctx context.Context) (claim, error) {
	c := &localClaim{line: l}
	l.mu.Lock()
	if l.current == nil {
		// Callers wait for a session at the same time, rather than each in its turn.
		l.mu.Unlock()
		if _, err := l.single.source.Session(ctx); err != nil {
			return nil, err
		}
		l.mu.Lock()
	}
	if l.taken {
		c.turn = make(chan *ownership, 1)
		l.waiting = append(l.waiting, c)
	}
	l.taken = true
	l.mu.Unlock()
	if c.turn != nil {
		return c, nil
	}
	return c, c.join(ctx, l.single.join)
}

func (l *line) tryLock(ctx context.Context) (claim, error) {
	l.mu.Lock()
	busy := l.taken
	l.taken = true
	l.mu.Unlock()
	if busy {
		return nil, ErrBusy
	}
	c := &localClaim{line: l}
	return c, c.join(ctx, l.single.tryJoin)
}

// pass gives the turn to the claim that has waited longest. With it goes o, or the claim has to join. It is called
// with mu held.
func (l *line) pass(o *ownership) {
	l.taken = len(l.waiting) > 0
	if l.taken {
		l.waiting[0].turn <- o
		l.waiting = l.waiting[1:]
	}
}

// localClaim is the claim of one Lock of a line: it waits for its turn, and then in etcd's queue.
type localClaim struct {
	nestedClaim // of own
	line        *line
	turn        chan *ownership   // nil: it has had the turn from the start
	ticket      *fairqueue.Ticket // nil: it waits for its turn
	own         *ownership        // nil before the grant

	// Of one that has given up before its turn: the ticket of the process, and whether that owned.
	inTheWay *fairqueue.Ticket
	owned    bool
}

// join is called with the turn. It takes the ownership that is kept, or gets a ticket.
func (c *localClaim) join(ctx context.Context, join func(context.Context) (*fairqueue.Ticket, error)) error {
	l := c.line
	if o := l.takeKept(ctx); o != nil {
		c.have(o)
		return nil
	}
	t, err := join(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.pass(nil)
		return err
	}
	c.ticket, l.ticket = t, t
	return nil
}

func (c *localClaim) have(o *ownership) {
	c.own, c.ticket, c.nestedClaim = o, o.ticket, nestedClaim{o.base.claim, o.base}
}

func (c *localClaim) Granted() bool { return c.own != nil || c.ticket != nil && c.ticket.Granted() }

func (c *localClaim) Wait(ctx context.Context) error {
	if c.turn != nil {
		if err := c.waitForTurn(ctx); err != nil {
			return err
		}
	}
	if c.own == nil {
		if err := c.ticket.Wait(ctx); err != nil {
			c.line.mu.Lock()
			defer c.line.mu.Unlock()
			c.line.pass(nil)
			return err
		}
		c.have(c.line.begin(c.ticket))
	}
	err := cmp.Or(ctx.Err(), c.base.Err())
	if err != nil {
		_ = c.release(ctx) // err is returned
	}
	return err
}

func (c *localClaim) waitForTurn(ctx context.Context) error {
	l := c.line
	var o *ownership
	select {
	case o = <-c.turn:
	case <-ctx.Done():
		l.mu.Lock()
		if i := slices.Index(l.waiting, c); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			c.inTheWay, c.owned = l.ticket, l.current != nil
			l.mu.Unlock()
			return ctx.Err()
		}
		l.mu.Unlock()
		o = <-c.turn // at the same moment
	}
	if o == nil {
		return c.join(ctx, l.single.join)
	}
	c.have(o)
	return nil
}

// Key is empty while the claim waits for its turn.
func (c *localClaim) Key() string {
	if c.ticket == nil {
		return ""
	}
	return c.ticket.Key()
}

// Revision is 0 while the claim waits for its turn.
func (c *localClaim) Revision() int64 {
	if c.ticket == nil {
		return 0
	}
	return c.ticket.Revision()
}

// Ahead counts the tickets in etcd's queue. In memory, others may be ahead besides.
func (c *localClaim) Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	if c.ticket != nil {
		return c.ticket.Ahead(ctx)
	}
	if c.inTheWay == nil {
		return fairqueue.Entry{}, 0, false
	}
	if !c.owned {
		return c.inTheWay.Ahead(ctx)
	}
	owner, ok = c.inTheWay.Self(ctx)
	return owner, 1, ok
}

func (c *localClaim) release(ctx context.Context) error { return c.own.pass(ctx) }
