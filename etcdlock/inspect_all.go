package etcdlock

import (
	"cmp"
	"context"
	"iter"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/follow"
)

// InspectAll yields the queue of every lock of the namespace that has a holder, a waiter or the size of a semaphore.
// Unlike [Inspect] it asks about no lease: TTLs are 0. It needs no session, and yields one error at most, as its last.
//
// It reads 500 keys in a request, with their values, and keeps no more of them than those and the queue that they are
// part of. All are read at the revision of the first, so all queues are as of one moment. If that revision is compacted
// meanwhile, the rest is read at a later one, and no queue is yielded twice.
//
// [WithNamespace] chooses the namespace. With [AtPrefix] names are prefixes, as those of locks made with it, and the
// namespace is where to look: without one that is all of etcd, where any key with a slash counts as a place in a line.
// A Queue's Prefix is unique. Its Name is too, but for prefixes in a namespace that no name of a lock leads to: such a
// Name is the prefix as it is. Keys that are in no queue, as "etcdlock/orders" is, block nobody and are left out.
func InspectAll(ctx context.Context, client *clientv3.Client, opts ...Option) iter.Seq2[Queue, error] {
	needContext(ctx)
	need(client, "InspectAll needs a client")
	return func(yield func(Queue, error) bool) {
		r, _, err := rootOf(opts)
		if err == nil {
			err = r.explain(client, r.walk(ctx, client, func(prefix string, kvs []*mvccpb.KeyValue) bool {
				q, exists := r.queue(prefix, kvs)
				return !exists || yield(q, nil)
			}))
		}
		if err != nil {
			yield(Queue{}, failed("inspect-all", r.prefix, err))
		}
	}
}

// walk calls yield for every queue, as long as that returns true.
func (r root) walk(ctx context.Context, client *clientv3.Client, yield func(prefix string, kvs []*mvccpb.KeyValue) bool) error {
	w, all := walk{root: r, yield: yield}, r.keys(client, 0)
	for next, at := all.First, int64(0); ; {
		page, err := all.Page(ctx, next, at)
		if at > 0 && follow.PastRevision(err) {
			next, at = w.restart(next), 0
			continue
		}
		if err != nil {
			return err
		}
		at = cmp.Or(at, page.Header.Revision)
		for _, kv := range page.Kvs {
			next = string(kv.Key) + "\x00"
			if !w.add(kv) {
				return nil
			}
		}
		if !page.More {
			w.close(func(part) bool { return true })
			return nil
		}
	}
}

// walk takes the keys of a root in their order.
type walk struct {
	root  root
	yield func(prefix string, kvs []*mvccpb.KeyValue) bool
	open  []part // queues that may have further keys; the prefix of each begins with that of the one before
	past  string // a queue whose keys all come before this one has been yielded; set after a compaction
}

// part is what has been read of a queue.
type part struct {
	prefix string
	kvs    []*mvccpb.KeyValue
}

// add takes in the next key. It returns false if the loop over the walk has ended.
func (w *walk) add(kv *mvccpb.KeyValue) bool {
	key := string(kv.Key)
	if !w.close(func(p part) bool { return !strings.HasPrefix(key, p.prefix) }) {
		return false
	}
	prefix, ok := w.root.queueAt(key)
	if !ok || prefix < w.past && !strings.HasPrefix(w.past, prefix) {
		return true
	}
	if last := len(w.open) - 1; last < 0 || w.open[last].prefix != prefix {
		w.open = append(w.open, part{prefix: prefix})
	}
	p := &w.open[len(w.open)-1]
	p.kvs = append(p.kvs, kv)
	return true
}

// close yields the queues at the end of the open ones that are complete.
func (w *walk) close(complete func(part) bool) bool {
	for last := len(w.open) - 1; last >= 0 && complete(w.open[last]); last-- {
		p := w.open[last]
		w.open = w.open[:last]
		if !w.yield(p.prefix, p.kvs) {
			return false
		}
	}
	return true
}

// restart forgets the open queues, before the key next, and returns where to begin with them again.
func (w *walk) restart(next string) string {
	w.past = max(w.past, next)
	if len(w.open) > 0 {
		next = w.open[0].prefix
	}
	w.open = nil
	return next
}
