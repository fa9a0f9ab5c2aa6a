package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

const (
	// watchAfter is how old a hold must be for a watch on its key. Most holds are shorter.
	watchAfter = time.Second

	// watchAgain is the pause after etcd refused to let the key be watched.
	watchAgain = 10 * time.Second
)

// claim is what a lock has acquired: first it waits, then a hold is bound to it. A kind of lock that
// needs more than a ticket in etcd has a claim of its own.
type claim interface {
	// ticket is nil as long as nothing of the claim is in etcd.
	ticket() *fairqueue.Ticket
	Wait(ctx context.Context) error
	Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool)

	// bind is called once, after the grant. From then on the claim ends the hold when it is lost.
	bind(h *Hold)
	// gone ends the hold because a key of the claim is missing, as err says.
	gone(err error)
	// release gives the claim up when the hold has ended.
	release(ctx context.Context) error
}

// ticketClaim is the claim of most kinds of locks, and a part of the others.
type ticketClaim struct {
	*fairqueue.Ticket
	hold    *Hold
	minimum time.Time   // no release takes effect before
	watch   *time.Timer // starts to watch the keys
}

func (c *ticketClaim) ticket() *fairqueue.Ticket { return c.Ticket }

func (c *ticketClaim) bind(h *Hold) {
	c.hold = h
	if d := h.lock.opts.minHold; d > 0 {
		c.minimum = time.Now().Add(d)
	}
	c.watch = time.AfterFunc(watchAfter, c.untilLost)
}

// untilLost watches the keys until one is lost, or the hold ends.
func (c *ticketClaim) untilLost() {
	for ctx := c.hold.Context(); ctx.Err() == nil; {
		if err := c.Lost(ctx); errors.Is(err, ErrLost) {
			c.hold.claim.gone(err) // c may be a part of that claim
			return
		}
		pause(ctx, watchAgain) // etcd refuses to be asked; the session still reports its own loss
	}
}

// gone leaves a single key to Unlock. Of several, the keys that are left would keep others waiting
// until then, so they are given up at once.
func (c *ticketClaim) gone(err error) {
	_ = c.hold.end(err)
	if len(c.Guards()) > 1 {
		c.Abandon()
	}
}

func (c *ticketClaim) release(ctx context.Context) error {
	c.watch.Stop()
	if left := time.Until(c.minimum); left > 0 {
		return c.ReleaseAfter(ctx, left)
	}
	return c.Leave(ctx)
}

// nestedClaim is a part of the claims of holds that share one, the base, which notices a loss for all of them.
type nestedClaim struct {
	claim // of the base
	base  *Hold
}

func (c *nestedClaim) bind(h *Hold) { h.outer = c.base }
