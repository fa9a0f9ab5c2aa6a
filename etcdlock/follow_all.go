package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// defaultRecheck is how often a follower reads everything again.
	defaultRecheck = 10 * time.Second

	// watchCreation bounds the wait until etcd confirms a watch.
	watchCreation = 5 * time.Second
)

// errWatchEnded says that a watch has to be made anew.
var errWatchEnded = errors.New("the watch ended")

// FollowAll yields every queue that [InspectAll] does, and then each one that has changed, in its latest state. One that
// has become empty is yielded once, without places. A loop that is slow skips states, but misses no queue. It ends with
// ctx, with the loop over it, or with an error when the client is closed. It needs no session.
//
// Trouble with etcd is waited out and not reported. Changes that no event has shown, because revisions were compacted,
// an event was lost, or etcd went back to an earlier revision, are yielded within about 15 s. An error is yielded, with
// an empty Queue, if etcd refuses to be read or watched; FollowAll goes on trying, with pauses, unless the loop is left.
//
// It costs the reads of an InspectAll, at first and about every 10 s, and one watch on the whole namespace. The watch gets
// every event of every lock there, so a process should have one FollowAll at most, and share what it yields among all
// that want to see it. It keeps all keys of the namespace and their values in memory.
func FollowAll(ctx context.Context, client *clientv3.Client, opts ...Option) iter.Seq2[Queue, error] {
	needContext(ctx)
	need(client, "FollowAll needs a client")
	return func(yield func(Queue, error) bool) {
		r, o, err := rootOf(opts)
		if err != nil {
			yield(Queue{}, failed("follow-all", r.prefix, err))
			return
		}
		f := &follower{
			root: r, client: client, recheck: cmp.Or(o.recheck, defaultRecheck), picture: newPicture(r),
		}
		var running sync.WaitGroup
		defer running.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		running.Go(func() { f.run(ctx) })
		for q, err := range f.picture.changes(ctx) {
			if !yield(q, failed("follow-all", r.prefix, err)) || errors.Is(err, request.ErrClientClosed) {
				return
			}
		}
	}
}

// follower keeps a picture up with etcd, in a goroutine of its own: it must not wait for the loop, since etcd's client
// keeps the events of a watch that nobody receives.
type follower struct {
	root    root
	client  *clientv3.Client
	recheck time.Duration
	picture *picture

	at      int64 // the revision of the picture; 0: it has to be read
	refused bool  // the last watch was
}

func (f *follower) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := f.follow(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if closed := request.CheckClient(f.client); closed != nil {
			f.picture.fail(closed)
			return
		}
		if ctx.Err() == nil && request.Refused(err) {
			f.picture.fail(err)
		}
		request.Sleep(ctx, ctx, request.Jitter(min(request.FirstPause<<min(failures, 10), request.LongPause)))
		failures++
	}
}

// follow goes on with one watch until it has to be replaced.
func (f *follower) follow(ctx context.Context) error {
	if f.at == 0 {
		if _, err := f.load(ctx); err != nil {
			return err
		}
	}
	streams := link.StreamsOf(f.client)
	watch, err := streams.Open(ctx, f.client, watchCreation, f.root.start(), clientv3.WithRange(f.root.end()), clientv3.WithRev(f.at+1))
	if err != nil {
		return f.ended(err)
	}
	defer watch.Stop()
	f.refused = false
	recheck := time.NewTimer(request.Jitter(f.recheck))
	defer recheck.Stop()
	for silent := true; ; {
		select {
		case response, ok := <-watch.Events:
			if err := response.Err(); !ok || err != nil {
				return f.ended(cmp.Or(err, errWatchEnded))
			}
			if len(response.Events) > 0 {
				silent, f.at = false, f.picture.apply(response.Events, f.at)
			}
		case <-watch.Ended: // its stream was left
			return errWatchEnded
		case <-recheck.C:
			before := f.at
			changed, err := f.load(ctx)
			if err != nil {
				return err
			}
			if f.at < before || changed && silent {
				// etcd went back, or the watch has missed something.
				streams.LeaveStream(watch.Stream)
				return nil
			}
			recheck.Reset(request.Jitter(f.recheck))
			silent = true
		}
	}
}

// ended is about the error of a watch. After a compaction everything is read again. A refusal counts the second time,
// since the stream may be at fault, and another one has been chosen.
func (f *follower) ended(err error) error {
	switch {
	case request.IsAnswer(err, rpctypes.ErrCompacted):
		f.at = 0
		return nil
	case !f.refused && !request.Passing(err):
		f.refused = true
		return errWatchEnded
	}
	return f.root.explain(f.client, err)
}

// load reads everything, and reports whether the picture was another one. If a part was read at a later revision than
// the first, what the watch would begin with is compacted, and everything is read again.
func (f *follower) load(ctx context.Context) (changed bool, err error) {
	queues := make(map[string]keys)
	at, err := f.root.walk(ctx, f.client, func(prefix string, kvs []*mvccpb.KeyValue) bool {
		for _, kv := range kvs {
			put(queues, prefix, kv)
		}
		return true
	})
	if err != nil {
		return false, err
	}
	f.at = at
	return f.picture.replace(queues), nil
}
