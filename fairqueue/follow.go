package fairqueue

import (
	"context"
	"iter"
	"maps"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/follow"
)

// Follow yields the tickets of the queue in order, first as they are and then after every
// change, however short it lasted. It ends with ctx, with the loop over it, or with an error when the
// client is closed. It needs no ticket and, if the source is a Session or a Keeper, no live session. With another source
// it ends with an error if that has no session.
//
// Temporary failures of etcd are retried and not reported, and no change is left out because of them. The exceptions
// are revisions that were compacted meanwhile, and an etcd that went back to an earlier revision, as after a restore:
// then the latest state is yielded within about 10 s. If etcd refuses a read or a watch, an error is yielded, without
// tickets. Follow retries with pauses unless the loop is left.
//
// It costs one read and one watch on the whole queue, and another read, without values, about every 10 s; Each change
// is sent to every follower, so run few of a queue with many tickets.
func (q *Queue) Follow(ctx context.Context) iter.Seq2[[]Entry, error] {
	needContext(ctx)
	return func(yield func([]Entry, error) bool) {
		client, err := q.client(ctx)
		if err != nil {
			yield(nil, q.failed(ctx, err))
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		report := func(entries []Entry, err error) {
			if ctx.Err() == nil && !yield(entries, q.failed(ctx, err)) {
				stop()
			}
		}
		all := q.space.all()
		tickets := follow.Range{Client: client, First: all.first, End: all.end, Recheck: q.options.recheck()}
		tickets.Follow(ctx, &follower{queue: q, report: report})
	}
}

// follower is a copy of the queue that is kept up with it.
type follower struct {
	queue  *Queue
	report func([]Entry, error)
	state  map[string]Entry // by key
}

func (f *follower) Replace(kvs []*mvccpb.KeyValue) {
	old := f.state
	f.state = f.queue.state(kvs)
	if old == nil || !maps.EqualFunc(old, f.state, func(a, b Entry) bool { return a.Revision == b.Revision && a.version == b.version }) {
		f.report(sorted(f.state), nil)
	}
}

func (f *follower) Apply(events []*clientv3.Event) {
	changed := false
	for _, event := range events {
		e, ok := f.queue.entry(event.Kv)
		switch changed = changed || ok; {
		case !ok: // of another queue
		case event.Type == clientv3.EventTypeDelete:
			delete(f.state, e.Key)
		default:
			f.state[e.Key] = e
		}
	}
	if changed {
		f.report(sorted(f.state), nil)
	}
}

func (f *follower) Fail(err error) { f.report(nil, err) }
