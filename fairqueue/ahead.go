package fairqueue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// aheadLimit is how much of a queue is worth reading for an explanation: thousands of callers
// that give up at once must not overload etcd with their reads.
const aheadLimit = 1000

// Ahead reads which ticket owned and how many were ahead when the wait was over, for an error
// message; of several keys, for the first that has any ahead. A ticket that owns counts itself. It makes two requests for a key, not
// retried. If it failed, if none was ahead, or if the queue is longer than 1,000, ok is false.
func (t *Ticket) Ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	for _, p := range t.parts {
		if owner, ahead, ok = p.ahead(ctx); ok {
			break
		}
	}
	return owner, ahead, ok
}

func (p *part) ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	all, client := p.queue.space.all(), p.session.Client()
	// Keys only: the values of candidates may be large.
	answer, err := client.Get(ctx, all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(aheadLimit), clientv3.WithSerializable())
	if err != nil || answer.More {
		return Entry{}, 0, false
	}
	entries := sorted(p.queue.state(answer.Kvs))
	if ahead = slices.IndexFunc(entries, func(e Entry) bool { return e.Revision >= p.me.revision }); ahead < 0 {
		ahead = len(entries)
	}
	if ahead == 0 {
		return Entry{}, 0, false // free by now
	}
	// The owner may leave between the two reads, so both are of one revision.
	owner, ok = p.read(ctx, entries[0].Key, answer.Header.Revision)
	return owner, ahead, ok
}

// Self reads the ticket itself, in the same way, for callers that wait for it in memory.
func (t *Ticket) Self(ctx context.Context) (e Entry, ok bool) {
	e, ok = t.first().read(ctx, t.Key(), 0)
	return e, ok && e.Revision == t.Revision()
}

// read reads a key of p's queue at a revision; 0 is the latest.
func (p *part) read(ctx context.Context, key string, revision int64) (Entry, bool) {
	answer, err := p.session.Client().Get(ctx, key, clientv3.WithRev(revision), clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 {
		return Entry{}, false
	}
	return p.queue.entry(answer.Kvs[0])
}
