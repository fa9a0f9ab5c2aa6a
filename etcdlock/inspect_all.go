package etcdlock

import (
	"context"
	"iter"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// InspectAll yields the queue of every lock of the namespace that has a holder, a waiter or the size of a semaphore.
// Unlike [Inspect] it asks about no lease: TTLs are 0. It needs no session, and yields one error at most, as its only
// yield.
//
// It reads all keys first, 500 in a request, with their values, and keeps them in memory until it ends: about 1.4 KiB for
// each holder and waiter, which is 140 MiB for 100,000. All are read at the revision of the first, so all queues are as
// of one moment. If that revision is compacted meanwhile, the reading begins again.
//
// [WithNamespace] chooses the namespace. With [AtPrefix] names are prefixes, as those of locks made with it, and only
// keys in the namespace are read. Without a namespace that is all of etcd: any key with a slash counts as a place in
// a line. A Queue's Prefix is unique. Its Name is too, unless it has a prefix in the namespace to which no name of a
// lock leads: such a Name is the prefix as it is. Keys that are in no queue, such as "etcdlock/orders", block no lock
// and are left out.
func InspectAll(ctx context.Context, client *clientv3.Client, opts ...Option) iter.Seq2[Queue, error] {
	needContext(ctx)
	need(client, "InspectAll needs a client")
	return func(yield func(Queue, error) bool) {
		r, _, err := rootOf(opts)
		var queues map[string]keys
		if err == nil {
			kvs, _, failure := r.keys(client, 0).Read(ctx, 0)
			queues, err = r.queues(kvs), r.explain(client, failure)
		}
		if err != nil {
			yield(Queue{}, failed("inspect-all", r.prefix, err))
			return
		}
		for _, prefix := range slices.Sorted(maps.Keys(queues)) {
			if q, exists := r.queue(prefix, queues[prefix]); exists && !yield(q, nil) {
				return
			}
		}
	}
}
