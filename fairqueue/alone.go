package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Alone reads whether no other ticket is in the queue, for an exclusive ticket that has been
// granted: one linearizable read of the beginning of the queue, and another one of all if the first found
// only keys of queues below it. If the ticket is gone, the error wraps [ErrGone].
func (t *Ticket) Alone(ctx context.Context) (bool, error) {
	alone, _, err := t.first().alone(ctx, false)
	if err != nil {
		return false, fmt.Errorf("ticket %s: %w", t.Key(), err)
	}
	return alone, nil
}

// Wanted blocks until another ticket is in the queue, and returns nil then, for an exclusive
// ticket that has been granted. Otherwise it is like [Ticket.Lost]: it notices a join within
// milliseconds, through one watch on the queue, and reads the beginning of the queue about every
// 10 s.
func (t *Ticket) Wanted(ctx context.Context) error {
	p := t.first()
	others := blocker{
		span: p.queue.space.all(),
		puts: true,
		endedBy: func(e *clientv3.Event) bool {
			if string(e.Kv.Key) == p.me.key {
				return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > p.me.revision
			}
			_, direct := p.queue.space.mode(string(e.Kv.Key))
			return direct && e.IsCreate()
		},
		exists: func(ctx context.Context, minRevision int64) (bool, int64, error) {
			alone, at, err := p.aloneSince(ctx, minRevision)
			if errors.Is(err, ErrGone) {
				err = nil
			}
			return alone, at, err
		},
	}
	w := &watcher{session: p.session, recheck: p.queue.options.recheck()}
	for seen := p.me.revision; ; {
		wakeup, err := w.await(ctx, others, seen)
		if err != nil {
			return err
		}
		alone, at, err := p.aloneSince(ctx, wakeup.revision)
		switch {
		case errors.Is(err, ErrGone):
			return fmt.Errorf("ticket %s: %w", p.me.key, err)
		case err != nil || !alone:
			return err
		}
		seen = at
	}
}

// aloneSince is alone at minRevision or later.
func (p *part) aloneSince(ctx context.Context, minRevision int64) (alone bool, at int64, err error) {
	minRevision = max(minRevision, p.me.revision)
	if alone, at, err = p.alone(ctx, true); at >= minRevision || err != nil && !errors.Is(err, ErrGone) {
		return alone, at, err
	}
	return p.alone(ctx, false)
}

// alone reads whether p is the only ticket. If it is not there, the error is ErrGone. It reads more
// than a limited range only if that has only keys of queues below the prefix.
func (p *part) alone(ctx context.Context, local bool) (alone bool, at int64, err error) {
	all := p.queue.space.all()
	for _, limit := range []int64{joinLimit, 0} {
		lists, revision, err := read(ctx, p.session,
			clientv3.OpGet(p.me.key, p.mode.readOptions(local)...),
			clientv3.OpGet(all.first, append(p.mode.readOptions(local), clientv3.WithRange(all.end), clientv3.WithLimit(limit))...))
		if err != nil {
			return false, 0, err
		}
		at = revision
		if !slices.ContainsFunc(lists[0].entries, p.me.is) {
			return false, at, ErrGone
		}
		others := slices.ContainsFunc(lists[1].entries, func(e entry) bool {
			return !e.is(p.me) && p.queue.space.blocks(e, Exclusive)
		})
		if others {
			return false, at, nil
		}
		if !lists[1].more {
			break
		}
	}
	return true, at, nil
}
