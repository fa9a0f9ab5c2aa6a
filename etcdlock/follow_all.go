package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// defaultRecheck is how often FollowAll compares what it has with etcd.
const defaultRecheck = 10 * time.Second

// FollowAll yields every queue that [InspectAll] does, and then each one that has changed, in its latest state. One that
// has become empty is yielded once, without places. A loop that is slow skips states, but misses no queue. It ends with
// ctx, with the loop over it, or with an error when the client is closed. It needs no session.
//
// When every queue has been yielded for the first time, an empty Queue is yielded, which has no Prefix, without an
// error. If there is no queue, it is the first that is yielded.
//
// Temporary failures of etcd are retried and not reported. Changes that no event has shown, because revisions were
// compacted, an event was lost, or etcd went back to an earlier revision, are yielded within about 15 s. If etcd
// refuses a read or a watch, an error is yielded, with an empty Queue. FollowAll retries with pauses unless the loop
// is left. When etcd can be read and watched again, an empty Queue is yielded without an error, whether there are
// changes or not.
//
// It costs the reads of an InspectAll at first, the same without values about every 10 s, and one watch on the whole
// namespace. The watch gets every event of every lock there, so run one FollowAll at most in a process, and share
// what it yields. It keeps all keys of the namespace and their values in memory.
func FollowAll(ctx context.Context, client *clientv3.Client, opts ...Option) iter.Seq2[Queue, error] {
	needContext(ctx)
	need(client, "FollowAll needs a client")
	return func(yield func(Queue, error) bool) {
		r, o, err := rootOf(opts)
		if err != nil {
			yield(Queue{}, failed("follow-all", r.prefix, err))
			return
		}
		p := newPicture(r)
		var running sync.WaitGroup
		defer running.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		// In a goroutine of its own, since etcd's client keeps the events of a watch that nobody receives.
		keys := r.keys(client, cmp.Or(o.recheck, defaultRecheck))
		keys.CaughtUp = p.CaughtUp
		running.Go(func() { keys.Follow(ctx, p) })
		for q, err := range p.changes(ctx) {
			if !yield(q, failed("follow-all", r.prefix, r.explain(client, err))) || errors.Is(err, request.ErrClientClosed) {
				return
			}
		}
	}
}
