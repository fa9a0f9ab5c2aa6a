package etcdlock

import (
	"context"
	"errors"
	"slices"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

// Term is the [Hold] of a leader, from Campaign until it is resigned or lost. It is safe for
// concurrent use.
type Term struct {
	*Hold
	candidacy *candidacy
}

// Proclaim replaces the value that observers see: one round trip, one raft entry. If the term is over,
// the error is how it ended, and nothing happens. For a value of more than 1 MiB the error wraps
// [ErrTooLarge], and the term goes on. If ctx ends before etcd answers, the value may have been replaced.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	t.ready(ctx)
	err := t.Err()
	if err == nil {
		if err = t.candidacy.Set(ctx, value); errors.Is(err, fairqueue.ErrGone) {
			err = t.gone(err)
		}
	}
	return failed("proclaim", t.Name(), t.orEnd(err))
}

// Resign is Unlock. Stop the work of the leader first.
func (t *Term) Resign(ctx context.Context) error { return t.Unlock(ctx) }

// Transfer ends the term and makes the first waiting candidate with the given value the leader, in
// one transaction: no other candidate leads in between, neither one that has waited longer, which joins
// again at the end of the line, nor one of higher priority. Stop the work of the leader first. Two reads
// and one transaction, again if candidates come or go meanwhile.
//
// The term goes on if no such candidate waits ([ErrNotWaiting]), if a candidate of another program is
// ahead of it ([ErrForeign]), if more than 126 candidates are ahead of it (a [*TooManyError]), or if
// etcd refuses the transaction. If ctx ends before etcd answers, the error wraps ctx's, and Err says
// whether the term is over.
//
// A candidate whose lease has not been renewed for half its TTL does not count as waiting: it is
// probably cut off, and there would be no leader until its lease expires. If the candidate gives up at
// the same moment, the next in line leads.
func (t *Term) Transfer(ctx context.Context, candidate string) error {
	t.ready(ctx)
	return failed("transfer", t.Name(), t.transfer(ctx, candidate))
}

func (t *Term) transfer(ctx context.Context, candidate string) error {
	begun, err := t.beginTransfer(ctx)
	if err != nil {
		return err
	}
	err = t.passOn(ctx, begun, candidate)
	if t.candidacy.Left() {
		_ = t.Unlock(ctx) // what is left of it; nothing to ask etcd for
	}
	return err
}

// transfer is one call of Transfer that has begun.
type transfer struct {
	done      chan struct{} // closed when it is over
	succeeded bool          // known then
}

// beginTransfer waits until no other one is under way. The caller has to end the one that it returns.
func (t *Term) beginTransfer(ctx context.Context) (*transfer, error) {
	begun := &transfer{done: make(chan struct{})}
	for !t.candidacy.transfer.CompareAndSwap(nil, begun) {
		other := t.candidacy.transfer.Load()
		if other == nil {
			continue
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if other.succeeded {
			return nil, t.Err()
		}
	}
	return begun, nil
}

// passOn also ends the transfer.
func (t *Term) passOn(ctx context.Context, begun *transfer, candidate string) error {
	defer func() {
		if !begun.succeeded {
			t.candidacy.transfer.Store(nil)
		}
		close(begun.done)
	}()
	if err := t.Err(); err != nil {
		return err
	}
	err := t.candidacy.PassTo(ctx, func(behind []fairqueue.Entry) int {
		return slices.IndexFunc(behind, func(e fairqueue.Entry) bool { return string(e.Value) == candidate })
	})
	begun.succeeded = err == nil
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		t.end(err)
		return t.Err() // the first reason counts
	case t.candidacy.Left() && t.Err() == nil:
		t.end(ErrUnlocked)
	}
	return err
}

// Lost waits for the end of a transfer that is under way: the key that it removes is not lost.
func (c *candidacy) Lost(ctx context.Context) error {
	err := c.Ticket.Lost(ctx)
	if under := c.transfer.Load(); under != nil && errors.Is(err, ErrLost) {
		<-under.done
	}
	return err
}

// gone leaves it to a transfer under way to end the term.
func (c *candidacy) gone(err error) {
	if c.transfer.Load() == nil {
		c.ticketClaim.gone(err)
	}
}

// release first waits for the end of a transfer that is under way, which may have removed the key, and
// removes it itself if its outcome is unknown.
func (c *candidacy) release(ctx context.Context) error {
	over := true
	if under := c.transfer.Load(); under != nil {
		bounded, cancel := request.Grace(ctx)
		defer cancel()
		select {
		case <-under.done:
		case <-bounded.Done():
			over = false
		}
	}
	err := c.ticketClaim.release(ctx)
	if errors.Is(err, fairqueue.ErrGone) && !over {
		return ctx.Err() // by the transfer, as it seems, but that is not confirmed
	}
	return err
}
