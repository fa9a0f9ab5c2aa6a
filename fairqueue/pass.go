package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

var (
	// ErrNotWaiting is returned by PassTo if the ticket to pass to is not in the queue.
	ErrNotWaiting = errors.New("etcdlock: not waiting")

	// ErrForeign is returned by PassTo if somebody stands in between who cannot be asked to
	// join again, because its ticket is not a candidate of ours.
	ErrForeign = errors.New("etcdlock: somebody else's ticket is in between")
)

// PassTo makes the ticket that chosen finds in the queue the next owner: one transaction
// deletes t, which must be a granted [Candidate], and all those between it and the chosen
// one, so that nobody else can own in between. Those passed over find their tickets gone
// ([ErrGone] from Wait) and are expected to join again. One read and one transaction; again
// if the queue changed meanwhile.
//
// chosen is given those behind t, in order, and returns the index of one or -1. Nothing has
// changed if the error is ErrNotWaiting or [ErrForeign], a [*TooManyError], if more than 126
// stand in between, or one that wraps [ErrGone], which says that t itself is. If ctx ends before
// etcd answers, it may have happened or not: then t is given up in the background. It is also
// given up on success.
func (t *Ticket) PassTo(ctx context.Context, chosen func(behind []Entry) int) error {
	err := t.passTo(ctx, chosen)
	if err != nil {
		return fmt.Errorf("ticket %s: %w", t.me.key, err)
	}
	return nil
}

func (t *Ticket) passTo(ctx context.Context, chosen func([]Entry) int) error {
	if t.mode != Candidate {
		panic("fairqueue: only candidates can be passed over")
	}
	doubtful := false
	var over []Entry // who would have been passed over by then
	for {
		behind, here, err := t.behind(ctx)
		switch {
		case err != nil && doubtful:
			t.abandon()
			return err
		case err != nil:
			return err
		case !here && doubtful && !anyOf(over, behind):
			t.passed() // an attempt whose answer was lost had been applied, or it comes to the same
			return nil
		case !here:
			return ErrGone
		}
		doubtful = false // what was sent had been refused in the end, and those guards never hold again
		index := chosen(behind)
		if index < 0 || index >= len(behind) {
			return ErrNotWaiting
		}
		over = behind[:index]
		conditions := []clientv3.Cmp{t.Guard(), guardOf(behind[index])}
		deletes := []clientv3.Op{clientv3.OpDelete(t.me.key)}
		for _, e := range over {
			if _, _, ours := t.queue.space.parts(e.Key); e.Mode != Candidate || !ours {
				return fmt.Errorf("%w: %s", ErrForeign, e.Key)
			}
			conditions = append(conditions, guardOf(e))
			deletes = append(deletes, clientv3.OpDelete(e.Key))
		}
		if len(conditions) > maxOperations {
			return &TooManyError{Places: len(conditions), Limit: maxOperations}
		}
		var done bool
		err = t.session.Call(ctx, func(ctx context.Context) error {
			answer, err := t.session.Client().Txn(ctx).If(conditions...).Then(deletes...).Commit()
			doubtful = doubtful || session.Doubtful(err)
			done = err == nil && answer.Succeeded
			return err
		})
		switch {
		case err != nil && doubtful:
			t.abandon()
			return err
		case err != nil:
			return tooMany(err, len(conditions))
		case done:
			t.passed()
			return nil
		}
	}
}

// passed is for a ticket that has been deleted. Its name must not be free twice, so if Leave
// was called meanwhile, that sees to it.
func (t *Ticket) passed() {
	if !t.left.Swap(true) {
		t.forget()
	}
}

// behind reads who stands behind t, in order, and whether t itself is there; otherwise it is all
// who are. It ends with the session, unlike [Queue.Entries], because nothing can be passed on
// after that.
func (t *Ticket) behind(ctx context.Context) (entries []Entry, here bool, err error) {
	err = t.session.Call(ctx, func(ctx context.Context) error {
		all := t.queue.space.all()
		answer, err := t.session.Client().Get(ctx, all.first, clientv3.WithRange(all.end))
		if err == nil {
			entries = slices.SortedFunc(maps.Values(t.queue.state(answer.Kvs)), byRevision)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	for i, e := range entries {
		if e.Key == t.me.key && e.Revision == t.me.revision {
			return entries[i+1:], true, nil
		}
	}
	return entries, false, nil
}

// anyOf reports whether one of the tickets is among the others.
func anyOf(tickets, others []Entry) bool {
	return slices.ContainsFunc(tickets, func(one Entry) bool {
		return slices.ContainsFunc(others, func(e Entry) bool { return e.Key == one.Key && e.Revision == one.Revision })
	})
}

func guardOf(e Entry) clientv3.Cmp {
	return createdAt(e.Key, e.Revision)
}
