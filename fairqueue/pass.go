package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
	"github.com/etcdlock/locks/internal/request"
)

var (
	// ErrNotWaiting is returned by PassTo if the ticket to pass to is not in the queue.
	ErrNotWaiting = errors.New("etcdlock: not waiting")

	// ErrForeign is returned by PassTo if a ticket in between is not a candidate of ours, and so
	// cannot be passed over.
	ErrForeign = errors.New("etcdlock: another program's ticket is in between")
)

// PassTo makes the ticket that chosen finds in the queue the next owner: one transaction deletes t, which must be a
// granted [Candidate], and all those between it and the chosen one, so that no other can own in between. Those passed
// over find their tickets gone ([ErrGone] from Wait) and are expected to join again. The chosen ticket owns whatever
// the priorities. Two reads and one transaction; again if the queue changed meanwhile.
//
// chosen gets the tickets behind t, in order, and returns the index of one or -1. A ticket whose lease has not been
// renewed for half its TTL is not passed to: its process is probably cut off. Then chosen is called again, without
// that ticket. Nothing has changed if the error is ErrNotWaiting or [ErrForeign], a [*TooManyError], if more than 126
// stand in between, etcd's, or one that wraps [ErrGone], which says that t itself is. If ctx ends before etcd
// answers, it may have happened or not: then t is given up in the background. left reports whether t has been given
// up, which it also is on success.
func (t *Ticket) PassTo(ctx context.Context, chosen func(behind []Entry) int) (left bool, err error) {
	p := t.first()
	err = p.passTo(ctx, true, func(_ Entry, behind []Entry) int { return chosen(behind) })
	return p.key.Left(), t.failed(ctx, err)
}

// candidate is the strategy of candidates.
type candidate struct{ exclusive }

// granted passes p, before it begins to own, to the highest priority behind it, if that is higher than its own. Then
// the error is ErrGone. It may own if there is no higher one, if that cannot be passed to, or if PassTo has chosen p.
// Behind a ticket that was granted when it joined there was none.
func (candidate) granted(ctx context.Context, p *part) error {
	if p.seen == p.me.revision {
		return nil
	}
	err := p.passTo(ctx, false, func(own Entry, behind []Entry) int {
		if own.version > own.Revision { // chosen: only PassTo writes to a ticket that waits
			return -1
		}
		return prefer(behind, own.Priority)
	})
	var tooMany *TooManyError
	switch {
	case err == nil:
		return ErrGone
	case errors.Is(err, ErrNotWaiting), errors.Is(err, ErrForeign), errors.As(err, &tooMany):
		return nil
	}
	// Gone or not: a late request to join may bring it back. If this fails, it goes on in the background.
	_ = keys.Keys{p.key}.Leave(ctx)
	return err
}

// prefer returns the index of the first of the highest priority above the given one that can be passed to, or -1.
func prefer(behind []Entry, above int) int {
	best := -1
	for i, e := range behind {
		if e.Mode != Candidate {
			break
		}
		if e.Priority > above {
			best, above = i, e.Priority
		}
	}
	return best
}

// passTo does the work of PassTo. If mark, the chosen ticket keeps that it was chosen: its
// value is written again, as it is, which does not matter to other programs.
func (p *part) passTo(ctx context.Context, mark bool, chosen func(own Entry, behind []Entry) int) error {
	if p.mode != Candidate {
		panic("fairqueue: only candidates can be passed over")
	}
	var unsure error // of an attempt that may have taken effect
	var over []Entry // would have been passed over by it
	for {
		own, behind, here, err := p.behind(ctx)
		switch {
		case err == nil && here:
		case err == nil && unsure != nil && !slices.ContainsFunc(over, func(e Entry) bool { return indexOf(behind, e.ticket()) >= 0 }):
			p.key.Removed() // that attempt had been applied, or it comes to the same
			return nil
		case err == nil:
			return ErrGone
		case unsure != nil:
			keys.Keys{p.key}.Abandon()
			return err
		default:
			return err
		}
		index, err := p.pick(ctx, behind, func(behind []Entry) int { return chosen(own, behind) })
		if err = cmp.Or(err, ctx.Err()); err != nil { // nothing sent, nothing in doubt
			return err
		}
		if request.IsAnswer(unsure, rpctypes.ErrNoSpace) {
			// Without space no ticket can join either, and those that are there show whether the mark matters.
			if !mark || prefer(behind, behind[index].Priority) >= 0 {
				return unsure
			}
			mark = false
		}
		var done bool
		over = behind[:index] // what was sent before had been refused in the end, and those guards never hold again
		done, unsure, err = p.sendPass(ctx, over, behind[index], mark)
		switch {
		case done:
			p.key.Removed()
			return nil
		case err == nil, request.IsAnswer(unsure, rpctypes.ErrNoSpace): // the next read shows what has become of it
		case unsure != nil:
			keys.Keys{p.key}.Abandon()
			return err
		default:
			return err
		}
	}
}

// sendPass sends the transaction. Unsure is the error of an attempt that may have taken effect.
func (p *part) sendPass(ctx context.Context, over []Entry, chosen Entry, mark bool) (done bool, unsure, err error) {
	conditions := []clientv3.Cmp{p.key.Guard(), keys.CreatedAt(chosen.Key, chosen.Revision)}
	writes := []clientv3.Op{clientv3.OpDelete(p.me.key)}
	for _, e := range over {
		if e.Foreign || e.Mode != Candidate {
			return false, nil, fmt.Errorf("%w: %s", ErrForeign, e.Key)
		}
		conditions = append(conditions, keys.CreatedAt(e.Key, e.Revision))
		writes = append(writes, clientv3.OpDelete(e.Key))
	}
	if mark && !chosen.Foreign && chosen.Mode == Candidate {
		writes = append(writes, clientv3.OpPut(chosen.Key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease()))
	}
	if len(conditions) > maxOperations {
		return false, nil, &TooManyError{Places: len(conditions), Limit: maxOperations}
	}
	err = p.link().Call(ctx, func(ctx context.Context) error {
		answer, err := p.session.Client().Txn(ctx).If(conditions...).Then(writes...).Commit()
		if request.Doubtful(err) && (unsure == nil || request.IsAnswer(unsure, rpctypes.ErrNoSpace)) {
			unsure = err
		}
		done = err == nil && answer.Succeeded
		return err
	})
	if unsure == nil && request.IsAnswer(err, rpctypes.ErrTooManyOps) {
		err = &TooManyError{Places: len(conditions)}
	}
	return done, unsure, err
}

// pick returns the index of the ticket that chosen finds among those whose leases are being renewed.
func (p *part) pick(ctx context.Context, behind []Entry, chosen func([]Entry) int) (int, error) {
	rest := slices.Clone(behind)
	none := ErrNotWaiting
	for {
		i := chosen(rest)
		if i < 0 || i >= len(rest) {
			return -1, none
		}
		e := rest[i]
		switch renewed, err := p.renewed(ctx, e); {
		case err != nil:
			return -1, err
		case renewed:
			return indexOf(behind, e.ticket()), nil
		}
		none = fmt.Errorf("%w: the lease of %s has not been renewed for half its TTL", ErrNotWaiting, e.Key)
		rest = slices.Delete(rest, i, i+1)
	}
}

// renewed reports whether e's lease has been renewed lately, as those of sessions are after a third
// of their TTL. If etcd refuses to answer, it counts as renewed.
func (p *part) renewed(ctx context.Context, e Entry) (bool, error) {
	if e.Lease == 0 {
		return true, nil
	}
	renewed := true
	err := p.link().Call(ctx, func(ctx context.Context) error {
		answer, err := p.session.Client().TimeToLive(ctx, e.Lease)
		if err != nil && !request.Passing(err) && ctx.Err() == nil {
			return nil // the permission to read every key of that lease, say, is missing
		}
		renewed = err != nil || 2*(answer.TTL+1) > answer.GrantedTTL // whole seconds of what is left
		return err
	})
	return renewed, err
}

// behind reads p and the tickets behind it, in order, and whether p itself is there; if it is not, they are all
// tickets. It ends with the session, unlike [Queue.Entries], because nothing can be passed on
// after that.
func (p *part) behind(ctx context.Context) (own Entry, entries []Entry, here bool, err error) {
	kvs, err := p.queue.read(ctx, p.session.Client(), p.link().Call)
	entries = sorted(p.queue.state(kvs))
	if i := indexOf(entries, p.me); i >= 0 {
		return entries[i], entries[i+1:], true, err
	}
	return Entry{}, entries, false, err
}

func indexOf(entries []Entry, ticket entry) int {
	return slices.IndexFunc(entries, func(e Entry) bool { return ticket.is(e.ticket()) })
}
