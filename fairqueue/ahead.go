package fairqueue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// aheadLimit is how much of a queue is worth reading for an explanation: thousands of callers
// that give up at once must not overload etcd with their reads.
const aheadLimit = 1000

// Ahead reads which ticket owned and how many were ahead when the wait was over, for an
// error message; of several keys, for the first that has any ahead. It is one request for each key, not retried. If it failed, if none was
// ahead, or if the queue is longer than 1,000, ok is false.
func (t *Ticket) Ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	for _, p := range t.parts {
		if owner, ahead, ok = p.ahead(ctx); ok {
			break
		}
	}
	return owner, ahead, ok
}

func (p *part) ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	all := p.queue.space.all()
	answer, err := p.session.Client().Get(ctx, all.first, clientv3.WithRange(all.end),
		clientv3.WithLimit(aheadLimit), clientv3.WithSerializable())
	if err != nil || answer.More {
		return Entry{}, 0, false
	}
	var entries []Entry
	for _, kv := range answer.Kvs {
		if e, ok := p.queue.entry(kv); ok && e.Revision < p.me.revision {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return Entry{}, 0, false // free by now
	}
	return slices.MinFunc(entries, byRevision), len(entries), true
}
