package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
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
	Key() string
	Revision() int64
	Session() *session.Session
	Guards() []clientv3.Cmp

	Granted() bool
	Wait(ctx context.Context) error
	Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool)

	// bind is called once, after the grant. From then on the claim ends the hold when it is lost.
	bind(h *Hold)
	// gone ends the hold because a key of the claim is missing, as err says.
	gone(err error)
	// release gives the claim up. It is called once, when the hold has ended.
	release(ctx context.Context) error
}

// ticketClaim is the claim of most kinds of locks, and a part of the others.
type ticketClaim struct {
	*fairqueue.Ticket
	hold    *Hold
	minimum time.Time // no release takes effect before

	watch   *time.Timer   // starts to watch the keys
	watched chan struct{} // closed when that has ended
}

func claimOf(t *fairqueue.Ticket, err error) (claim, error) {
	if err != nil {
		return nil, err
	}
	return &ticketClaim{Ticket: t}, nil
}

// writerClaim is the claim of a Mutex or RWMutex, whose hold can be downgraded.
type writerClaim struct {
	ticketClaim
	downgraded atomic.Bool
}

func writerClaimOf(t *fairqueue.Ticket, err error) (claim, error) {
	if err != nil {
		return nil, err
	}
	return &writerClaim{ticketClaim: ticketClaim{Ticket: t}}, nil
}

func (c *ticketClaim) bind(h *Hold) {
	c.hold = h
	if d := h.lock.opts.minHold; d > 0 {
		c.minimum = time.Now().Add(d)
	}
	c.watched = make(chan struct{})
	c.watch = time.AfterFunc(watchAfter, func() {
		defer close(c.watched)
		untilLost(h.Context(), c.Lost, h.claim.gone) // of the claim that c is a part of
	})
}

// untilLost calls gone when lost returns ErrLost. It ends with ctx.
func untilLost(ctx context.Context, lost func(context.Context) error, gone func(error)) {
	for ctx.Err() == nil {
		if err := lost(ctx); errors.Is(err, ErrLost) {
			gone(err)
			return
		}
		pause(ctx, watchAgain) // etcd refuses to be asked; the session still reports its own loss
	}
}

// gone leaves a single key to Unlock. Of several, the keys that are left would keep others waiting
// until then, so they are given up at once.
func (c *ticketClaim) gone(err error) {
	c.hold.end(err)
	if len(c.Guards()) > 1 {
		c.Abandon()
	}
}

// release also waits for the end of the watch, so that nothing of the hold runs when Unlock has returned.
func (c *ticketClaim) release(ctx context.Context) (err error) {
	if left := time.Until(c.minimum); left > 0 {
		err = c.ReleaseAfter(ctx, left)
	} else {
		err = c.Leave(ctx)
	}
	if !c.watch.Stop() {
		bounded, cancel := request.Grace(ctx)
		defer cancel()
		select {
		case <-c.watched:
		case <-bounded.Done():
		}
	}
	return err
}
