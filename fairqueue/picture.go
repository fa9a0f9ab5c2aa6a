package fairqueue

import (
	"cmp"
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// sharedLimit is for an answer without which each asks: an attempt at a silent endpoint, and one more.
const sharedLimit = 10 * time.Second

// firstLook is look for a ticket whose join could not tell what is ahead of it. When several of one
// session ask that at the same time, one read of the whole queue answers all of them.
func (t *Ticket) firstLook(ctx context.Context) error {
	own := func() error { return t.look(ctx, t.me.revision) }
	if t.mode == Shared || t.mode == permit { // whose answers have values, or are different ones
		return t.session.Link().InTurn(ctx, own)
	}
	a, err := link.Gather(ctx, t.session.Link(), string(t.queue.space), func(ctx context.Context, callers int) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, sharedLimit)
		defer cancel()
		if callers > 1 {
			return t.queue.readWhole(ctx, t.session)
		}
		a, err := t.ask(ctx, 1, true)
		slices.Reverse(a.entries)
		return a, err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		t.learn(a.endingAt(t.me), t.me.revision)
		if t.verdict != askFurther && t.verdict != askAgain {
			return nil
		}
	}
	// The answer was too large for this client, say.
	return t.session.Link().InTurn(ctx, own)
}

// readWhole reads all tickets, in order, as of now.
func (q *Queue) readWhole(ctx context.Context, s *session.Session) (answer, error) {
	var response *clientv3.GetResponse
	all := q.space.all()
	err := s.Link().Call(ctx, func(ctx context.Context) (err error) { // not read: others' are not to wait for this one
		response, err = s.Client().Get(ctx, all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly())
		return err
	})
	if err != nil {
		return answer{}, err
	}
	entries := slices.DeleteFunc(entriesOf(response.Kvs), func(e entry) bool { return !q.space.blocks(e, Exclusive) })
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return answer{revision: response.Header.Revision, entries: entries, length: response.Count}, nil
}

// endingAt is what of a, whose entries are in order and all block, matters to me: itself and the entry before it.
func (a answer) endingAt(me entry) answer {
	end, _ := slices.BinarySearchFunc(a.entries, me.revision+1, func(e entry, revision int64) int { return cmp.Compare(e.revision, revision) })
	if first := max(end-2, 0); first > 0 {
		a.from = max(a.from, a.entries[first].revision)
		a.entries = a.entries[first:end]
		return a
	}
	a.entries = a.entries[:end]
	return a
}
