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
	var left bool
	var err error
	select {
	case t.candidacy.transfers <- struct{}{}:
		left, err = t.passTo(ctx, candidate)
		<-t.candidacy.transfers
	case <-ctx.Done():
		err = ctx.Err()
	}
	if left {
		_ = t.Unlock(ctx) // makes no request
	}
	return failed("transfer", t.Name(), err)
}

func (t *Term) passTo(ctx context.Context, candidate string) (left bool, err error) {
	if err := t.Err(); err != nil {
		return false, err
	}
	left, err = t.candidacy.PassTo(ctx, func(behind []fairqueue.Entry) int {
		return slices.IndexFunc(behind, func(e fairqueue.Entry) bool { return string(e.Value) == candidate })
	})
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		err = t.end(err)
	case left && t.Err() == nil:
		_ = t.end(ErrUnlocked) // also if the outcome is unknown
	}
	return left, err
}

// gone has no effect before a transfer that is under way is over. That may have removed the key, and ends the term
// itself then.
func (c *candidacy) gone(err error) {
	lost := func() {
		c.ticketClaim.gone(err)
		<-c.transfers
	}
	select {
	case c.transfers <- struct{}{}:
		lost()
	default:
		go func() { c.transfers <- struct{}{}; lost() }() // ends with the transfer
	}
}

// release waits for a transfer that is under way. If its outcome is unknown, or it has failed, the key is
// removed here.
func (c *candidacy) release(ctx context.Context) error {
	bounded, cancel := request.Grace(ctx)
	defer cancel()
	over := true
	select {
	case c.transfers <- struct{}{}:
		<-c.transfers
	case <-bounded.Done():
		over = false
	}
	err := c.ticketClaim.release(ctx)
	if errors.Is(err, fairqueue.ErrGone) && !over {
		return ctx.Err() // probably by the transfer, but that is not confirmed
	}
	return err
}
