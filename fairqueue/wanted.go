package fairqueue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Alone reads whether no other ticket is in the queue, for an exclusive ticket that has been
// granted: one linearizable read of the beginning of the queue, and another one of all if the first found
// only keys of queues below it. If the ticket is gone, the error wraps [ErrGone].
func (t *Ticket) Alone(ctx context.Context) (bool, error) {
	alone, _, err := t.first().alone(ctx, 0)
	return alone, t.failed(err)
}

// Wanted blocks until another ticket is in the queue, and returns nil then, for an exclusive
// ticket that has been granted. Otherwise it is like [Ticket.Lost]: it notices a join within
// milliseconds, through one watch on the queue, and reads the beginning of the queue about every
// 10 s.
func (t *Ticket) Wanted(ctx context.Context) error {
	p, gone := t.first(), false
	_, err := p.watcher().until(ctx, blocker{
		span: p.queue.space.all(),
		puts: true,
		endedBy: func(e *clientv3.Event) bool {
			if string(e.Kv.Key) == p.me.key {
				gone = e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > p.me.revision
				return gone
			}
			_, direct := p.queue.space.mode(string(e.Kv.Key))
			return direct && e.IsCreate()
		},
		exists:  p.alone,
		recheck: p.alone,
	}, p.me.revision)
	if err == nil && gone {
		err = ErrGone
	}
	return t.failed(err)
}

// alone reads whether p is the only ticket, at minRevision or later; as of now, if that is 0. If it is not there, the
// error is ErrGone. It reads more than the beginning only if that has only keys of queues below the prefix.
func (p *part) alone(ctx context.Context, minRevision int64) (alone bool, at int64, err error) {
	local, limit := minRevision > 0, int64(joinLimit)
	for {
		options := p.mode.readOptions(local)
		lists, at, err := read(ctx, p.session,
			clientv3.OpGet(p.me.key, options...), p.queue.space.all().get(append(options, clientv3.WithLimit(limit))...))
		others := func(e entry) bool { return !e.is(p.me) && p.queue.space.blocks(e, Exclusive) }
		switch {
		case err != nil:
			return false, 0, err
		case local && at < max(minRevision, p.me.revision):
			local = false
		case !lists[0].contains(p.me):
			return false, at, ErrGone
		case slices.ContainsFunc(lists[1].entries, others):
			return false, at, nil
		case !lists[1].more:
			return true, at, nil
		default:
			limit = 0
		}
	}
}
