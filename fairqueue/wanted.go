package fairqueue

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Wanted blocks until somebody else stands in the queue, and returns nil then, for an exclusive
// ticket that has been granted. Otherwise it is like [Ticket.Lost]: it hears of who joins within
// milliseconds, through one watch on the queue, and reads the beginning of the queue about every
// 10 s.
func (t *Ticket) Wanted(ctx context.Context) error {
	w := t.watcher()
	o := t.solitude()
	seen := t.me.revision
	for {
		news, err := w.await(ctx, o, seen)
		if err != nil {
			return err
		}
		here, company, at, err := t.company(ctx, news.revision)
		switch {
		case err != nil:
			return err
		case !here:
			return fmt.Errorf("ticket %s: %w", t.me.key, ErrGone)
		case company:
			return nil
		}
		seen = at
	}
}

// solitude is that t is there, and nobody else.
func (t *Ticket) solitude() obstacle {
	return obstacle{
		span: t.queue.space.all(),
		puts: true,
		ends: func(e *clientv3.Event) bool {
			if string(e.Kv.Key) == t.me.key {
				return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > t.me.revision
			}
			_, direct := t.queue.space.mode(string(e.Kv.Key))
			return direct && e.IsCreate()
		},
		stands: func(ctx context.Context, least int64) (bool, int64, error) {
			here, company, at, err := t.company(ctx, least)
			return here && !company, at, err
		},
	}
}

// Alone reads whether nobody else stands in the queue, for an exclusive ticket that has been
// granted: one linearizable read of its beginning, and another one of all if that is keys of
// queues below it only. If the ticket is gone, the error wraps [ErrGone].
func (t *Ticket) Alone(ctx context.Context) (bool, error) {
	here, company, _, err := t.neighbours(ctx, false)
	if err == nil && !here {
		err = ErrGone
	}
	if err != nil {
		return false, fmt.Errorf("ticket %s: %w", t.me.key, err)
	}
	return !company, nil
}

// company reads whether t is there, and whether anybody else is, at revision least or later.
func (t *Ticket) company(ctx context.Context, least int64) (here, company bool, at int64, err error) {
	for _, local := range []bool{true, false} {
		here, company, at, err = t.neighbours(ctx, local)
		if err != nil || at >= least {
			break
		}
	}
	return here, company, at, err
}

// neighbours reads on only if all that it has seen are keys of queues below the prefix.
func (t *Ticket) neighbours(ctx context.Context, local bool) (here, company bool, at int64, err error) {
	all := t.queue.space.all()
	for _, limit := range []int64{joinLimit, 0} {
		lists, revision, err := read(ctx, t.session,
			clientv3.OpGet(t.me.key, t.mode.readOptions(local)...),
			clientv3.OpGet(all.first, append(t.mode.readOptions(local), clientv3.WithRange(all.end), clientv3.WithLimit(limit))...))
		if err != nil {
			return false, false, 0, err
		}
		at, here = revision, slices.ContainsFunc(lists[0].entries, t.me.is)
		company = slices.ContainsFunc(lists[1].entries, func(e entry) bool {
			return !e.is(t.me) && t.queue.space.blocks(e, Exclusive)
		})
		if company || !lists[1].more {
			break
		}
	}
	return here, company, at, nil
}
