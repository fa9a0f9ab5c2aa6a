package fairqueue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// aheadLimit is how much of a queue is worth reading for an explanation: when thousands
// give up at once, they must not bring etcd down with their reads.
const aheadLimit = 1000

// Ahead reads who owned and how many stood ahead of the ticket when its wait was over, for an
// error message. It is one request, not tried again; ok is false if it failed, if nobody was
// there, or if the queue is longer than 1,000.
func (t *Ticket) Ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	all := t.queue.space.all()
	answer, err := t.session.Client().Get(ctx, all.first, clientv3.WithRange(all.end),
		clientv3.WithLimit(aheadLimit), clientv3.WithSerializable())
	if err != nil || answer.More {
		return Entry{}, 0, false
	}
	var entries []Entry
	for _, kv := range answer.Kvs {
		if e, ok := t.queue.entry(kv); ok && e.Revision < t.me.revision {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return Entry{}, 0, false // free by now
	}
	return slices.MinFunc(entries, byRevision), len(entries), true
}

// Ahead is [Ticket.Ahead] of the first queue in which somebody is.
func (g *Group) Ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	for _, t := range g.tickets {
		if owner, ahead, ok = t.Ahead(ctx); ok {
			return owner, ahead, true
		}
	}
	return Entry{}, 0, false
}
