package fairqueue

import (
	"cmp"
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// strategy is what a mode does in its own way.
type strategy interface {
	// look asks etcd how things stand with p, since or later, and records the answer in p.
	look(ctx context.Context, p *part, since wakeup) error
	// firstLook is look after a join whose answer did not say enough.
	firstLook(ctx context.Context, p *part) error
	// blocker is what p, which is one of parts, has to wait for, according to the last answer.
	blocker(p *part, parts []*part) blocker
	// granted is called when p has been granted, before Wait returns.
	granted(ctx context.Context, p *part) error
}

// Wait waits until the ticket is granted; of several keys, until as many as were asked for are granted
// together. If it returns an error, the ticket has been given up, and what is left of it is removed in the
// background. It returns promptly with ctx's error when that ends, even if the grant comes at the same
// time; with [session.ErrLost] when the session or the ticket itself is lost; and
// with etcd's error if etcd refuses (permission denied).
//
// Failures of a watch, the network or members of the cluster are not errors: Wait retries.
//
// Waiting for several keys costs what it costs for each, one after the other, and one read more at
// the end. Waiting for any takes one goroutine and one watch for each place, and a transaction. A
// permit with a slot takes one read and one transaction more, and retries while no slot is free.
//
// A [Candidate] that has waited takes one read more. If one of higher priority waits behind it, it passes the queue on
// to that, as [Ticket.PassTo] does, and the error is [ErrGone]: it is expected to join again.
func (t *Ticket) Wait(ctx context.Context) error {
	needContext(ctx)
	err := t.wait(ctx)
	if err == nil {
		// A grant is of no use to a caller that has stopped waiting, nor with a session that may be lost.
		err = cmp.Or(t.Session().Err(), ctx.Err())
	}
	if err != nil {
		keysOf(t.parts).Abandon()
		return t.failed(ctx, err)
	}
	return nil
}

func (t *Ticket) wait(ctx context.Context) error {
	// To ask about many takes several reads, and between them the first may go and what the last waits for.
	bySeen := func(a, b *part) int { return cmp.Compare(a.seen, b.seen) }
	together := t.Granted() && slices.MinFunc(t.parts, bySeen).seen == slices.MaxFunc(t.parts, bySeen).seen
	if t.want < len(t.parts) {
		if err := t.waitForAny(ctx); err != nil {
			return err
		}
	} else {
		for _, p := range t.parts {
			if err := p.wait(ctx, t.parts); err != nil {
				return err
			}
		}
	}
	if !together && len(t.parts) > 1 {
		return confirm(ctx, t.parts, slices.MaxFunc(t.parts, bySeen).seen)
	}
	if p := t.first(); p.mode == permit && p.queue.options.Slots {
		return t.takeSlot(ctx)
	}
	return nil
}

// wait waits until p, which is one of parts, is granted.
func (p *part) wait(ctx context.Context, parts []*part) error {
	for {
		switch p.verdict {
		case granted:
			return p.strategy.granted(ctx, p)
		case gone:
			return ErrGone
		case blocked:
			up, err := p.until(ctx, p.strategy.blocker(p, parts), p.seen)
			if err == nil {
				err = p.strategy.look(ctx, p, up)
			}
			if err != nil {
				return err
			}
		default:
			if err := p.strategy.firstLook(ctx, p); err != nil {
				return err
			}
		}
	}
}

// inOrder is the strategy of tickets that are blocked by what was created before them: one by any,
// a shared one by any that is not shared.
type inOrder struct{}

// look is cut off behind the nearest blocker, which is enough unless keys of other queues are in between. Any
// member may answer (invariant 2).
func (inOrder) look(ctx context.Context, p *part, since wakeup) error {
	minRevision := max(since.revision, p.me.revision)
	for _, limit := range []int64{1, 64, 0} {
		var a answer
		_, err := p.asOf(minRevision, func(local bool) (_ int64, err error) {
			a, err = p.ask(ctx, limit, local)
			return a.revision, err
		})
		if err != nil {
			return err
		}
		if p.learn(a, minRevision); p.verdict != askFurther {
			return nil
		}
	}
	panic("fairqueue: an unlimited answer was cut off")
}

// firstLook takes its turn, since a look at a long queue costs etcd much.
func (inOrder) firstLook(ctx context.Context, p *part) error {
	return p.link().InTurn(ctx, func() error { return p.strategy.look(ctx, p, wakeup{revision: p.me.revision}) })
}

// blocker is the predecessor. A recheck reads its key and p's own. A look, which reads the whole queue, would cost too
// much: every waiter rechecks from time to time, and all do when a stream of watches breaks.
func (inOrder) blocker(p *part, parts []*part) blocker {
	nearest := p.nearest
	return blocker{
		span:   span{first: nearest.key},
		puts:   p.mode == Shared,
		length: p.length,
		endedBy: func(e *clientv3.Event) bool {
			// Not an earlier key of that name.
			return e.Kv.ModRevision > nearest.revision && (e.Type == clientv3.EventTypeDelete || isMarked(e.Kv.Value))
		},
		exists: p.present(nearest),
		recheck: func(ctx context.Context, minRevision int64) (exists bool, at int64, err error) {
			exists, at, err = p.present(p.me, nearest)(ctx, minRevision)
			if err == nil && exists && len(parts) > 1 {
				err = confirm(ctx, parts, at) // without the others p is of no use
			}
			return exists, at, err
		},
	}
}

func (inOrder) granted(context.Context, *part) error { return nil }

func (p *part) learn(a answer, minRevision int64) {
	p.seen, p.length = a.revision, a.length
	p.verdict, p.nearest = p.queue.space.decide(p.me, p.mode, minRevision, a)
}

// ask reads the ticket itself and, of each span in which something may block it,
// the last limit keys created before it, all at one revision.
func (p *part) ask(ctx context.Context, limit int64, local bool) (answer, error) {
	lists, revision, err := read(ctx, p.session, p.questions(limit, local)...)
	if err != nil {
		return answer{}, err
	}
	return answerOf(lists, revision), nil
}

// questions are the reads for that. The ticket itself is in the span, unless it is shared.
func (p *part) questions(limit int64, local bool) (reads []clientv3.Op) {
	if p.mode == Shared {
		reads = append(reads, clientv3.OpGet(p.me.key, p.mode.readOptions(local)...))
	} else if limit > 0 {
		limit++
	}
	for _, span := range p.queue.space.blocking(p.mode) {
		reads = append(reads, clientv3.OpGet(span.first, append(p.mode.readOptions(local),
			clientv3.WithRange(span.end),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
			clientv3.WithMaxCreateRev(p.me.revision),
			clientv3.WithLimit(limit))...))
	}
	return reads
}

func answerOf(lists []list, revision int64) answer {
	a := answer{revision: revision}
	for _, l := range lists {
		a.length += l.count
		a.entries = append(a.entries, l.entries...)
		a.completeSince = max(a.completeSince, completeSince(l.entries, l.more))
	}
	return a
}
