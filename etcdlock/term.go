package etcdlock

import (
	"context"
	"errors"
	"slices"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

// Term is the time for which a candidate leads, from Campaign until it resigns or is lost.
// It is a [Hold] and has all that one has. It is safe for concurrent use.
type Term struct {
	*Hold
	ticket *fairqueue.Ticket
}

// Proclaim replaces the value that others see, without an interruption of the term: one round
// trip, one raft entry. If the term is over, the error says how, and nothing happens. A value of
// more than 1 MiB is refused with [ErrTooLarge], and the term goes on. If ctx
// ends before etcd answers, the value may or may not have been replaced.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	t.ready(ctx)
	err := t.Err()
	if err == nil {
		if err = t.ticket.Set(ctx, value); errors.Is(err, fairqueue.ErrGone) {
			err = t.gone(err)
		}
	}
	return failed("proclaim", t.Name(), t.orEnd(err))
}

// Resign ends the term. It is the same as Unlock, and like it works with a context that is over.
// Stop what the leader does before.
func (t *Term) Resign(ctx context.Context) error { return t.Unlock(ctx) }

// Transfer ends the term and makes the first waiting candidate with the given value the leader,
// in one transaction, so that nobody else leads in between: neither candidates that have waited
// longer, which are in line behind again, nor those of a higher priority. Stop what the leader does
// before. Two reads and one transaction, again if candidates come or go meanwhile.
//
// If no such candidate waits, the error wraps [ErrNotWaiting]; if a candidate of another
// program, which cannot be asked to step back, is ahead of it, [ErrForeign]; if more than 126
// candidates are ahead of it, a [*TooManyError]. Then the term goes on, as it does if etcd refuses: without
// space in its database, a transfer past a higher priority. If ctx ends before etcd answers, the error wraps ctx's; the term is over if Err says so.
//
// A candidate that is cut off from etcd cannot lead, and nobody does until its TTL is over. So one
// whose lease has not been renewed for half its TTL does not count as waiting. One that was cut off
// more recently looks like any other. A candidate that gives up at the same moment leaves the term
// to the next in line.
func (t *Term) Transfer(ctx context.Context, candidate string) error {
	t.ready(ctx)
	return failed("transfer", t.Name(), t.transfer(ctx, candidate))
}

func (t *Term) transfer(ctx context.Context, candidate string) error {
	p, err := t.beginPassing(ctx)
	if err != nil {
		return err
	}
	err = t.passOn(ctx, p, candidate)
	if t.ticket.Left() {
		_ = t.Unlock(ctx) // what is left of it; nothing to ask etcd for
	}
	return err
}

// passing is one Transfer.
type passing struct {
	done      chan struct{} // closed when it is over
	succeeded bool          // known then
}

// beginPassing waits until no other Transfer is under way. The caller has to end the one that it returns.
func (t *Term) beginPassing(ctx context.Context) (*passing, error) {
	p := &passing{done: make(chan struct{})}
	for !t.passing.CompareAndSwap(nil, p) {
		other := t.passing.Load()
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
	return p, nil
}

// passOn ends p as well.
func (t *Term) passOn(ctx context.Context, p *passing, candidate string) error {
	defer func() {
		if !p.succeeded {
			t.passing.Store(nil)
		}
		close(p.done)
	}()
	if err := t.Err(); err != nil {
		return err
	}
	err := t.ticket.PassTo(ctx, func(behind []fairqueue.Entry) int {
		return slices.IndexFunc(behind, func(e fairqueue.Entry) bool { return string(e.Value) == candidate })
	})
	p.succeeded = err == nil
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		t.end(err)
		return t.Err() // the first reason counts
	case t.ticket.Left() && t.Err() == nil:
		t.end(ErrUnlocked)
	}
	return err
}

// transferred reports whether the key is gone because a Transfer at the same moment succeeded. It waits for
// its answer for as long as ctx lasts.
func (h *Hold) transferred(ctx context.Context) bool {
	p := h.passing.Load()
	if p == nil {
		return false
	}
	bounded, cancel := request.Grace(ctx)
	defer cancel()
	select {
	case <-p.done:
		return p.succeeded
	case <-bounded.Done():
		return false
	}
}
