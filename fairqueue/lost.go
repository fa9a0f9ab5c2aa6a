package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lost blocks until the ticket is known to be lost, and returns an error that wraps
// [session.ErrLost], or until ctx is over, and returns ctx's error. The loss of one of several keys
// is the loss of the ticket. A deletion is noticed within milliseconds, through one watch on each
// key. About every 10 s Lost reads the key and starts another watch. Failures of the watch are no
// loss: Lost reads the key, and watches again. An error of another kind says that etcd refuses. It
// runs in the caller's goroutine, and in one for each of several keys.
func (t *Ticket) Lost(ctx context.Context) error {
	needContext(ctx)
	if len(t.parts) == 1 {
		return t.lost(ctx, t.first().lost(ctx))
	}
	watching, stop := context.WithCancel(ctx)
	losses := make(chan error, len(t.parts))
	var watchers sync.WaitGroup
	for _, p := range t.parts {
		watchers.Go(func() { losses <- p.lost(watching) })
	}
	defer watchers.Wait()
	defer stop()
	return t.lost(ctx, <-losses)
}

// lost adds to err what it is about, unless the session has ended, which is about all its tickets.
func (t *Ticket) lost(ctx context.Context, err error) error {
	if t.Session().Err() != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return t.failed(ctx, err)
}

func (p *part) lost(ctx context.Context) error {
	there := p.present(p.me)
	_, err := p.until(ctx, untilDeleted(p.me, there, there), p.me.revision)
	return cmp.Or(err, ErrGone)
}

// Alone reads whether no other ticket is in the queue, for an exclusive ticket that has been
// granted: one linearizable read of the beginning of the queue, and another one of all if the first found
// only keys of queues below it. If the ticket is gone, the error wraps [ErrGone].
func (t *Ticket) Alone(ctx context.Context) (bool, error) {
	alone, _, err := t.first().alone(ctx, 0)
	return alone, t.failed(ctx, err)
}

// Wanted blocks until another ticket is in the queue, and returns nil then, for an exclusive
// ticket that has been granted. Otherwise it is like [Ticket.Lost]: it notices a join within
// milliseconds, through one watch on the queue, and reads the beginning of the queue about every
// 10 s.
func (t *Ticket) Wanted(ctx context.Context) error {
	p, gone := t.first(), false
	_, err := p.until(ctx, blocker{
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
	return t.failed(ctx, err)
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
