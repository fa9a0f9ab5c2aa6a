package etcdlock

import (
	"context"
	"errors"
	"slices"

	"github.com/etcdlock/locks/fairqueue"
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
// in one transaction, so that nobody else leads in between, not even those who have waited
// longer; they are in line behind again. Stop what the leader does before. One read and one
// transaction, again if candidates come or go meanwhile.
//
// If there is no such candidate, the error wraps [ErrNotWaiting]; if a candidate of another
// program, which cannot be asked to step back, is ahead of it, [ErrForeign]; if more than 126
// candidates are ahead of it, a [*TooManyError]. Then the term goes on. If ctx ends before etcd
// answers, the error wraps ctx's; the term is over if Err says so.
func (t *Term) Transfer(ctx context.Context, candidate string) error {
	return failed("transfer", t.Name(), t.transfer(ctx, candidate))
}

func (t *Term) transfer(ctx context.Context, candidate string) error {
	if err := t.Err(); err != nil {
		return err
	}
	err := t.passOn(ctx, candidate)
	if t.ticket.Left() {
		_ = t.Unlock(ctx) // what is left of it; nothing to ask etcd for
	}
	return err
}

func (t *Term) passOn(ctx context.Context, candidate string) error {
	t.ending.Lock() // that the key is gone must not count as a loss
	defer t.ending.Unlock()
	t.passing.Store(true) // nor that others find it gone
	defer t.passing.Store(false)
	err := t.ticket.PassTo(ctx, func(behind []fairqueue.Entry) int {
		return slices.IndexFunc(behind, func(e fairqueue.Entry) bool { return string(e.Value) == candidate })
	})
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		t.end(err)
		return t.Err() // the first reason counts
	case t.ticket.Left() && t.Err() == nil:
		t.end(ErrUnlocked)
	}
	return err
}
