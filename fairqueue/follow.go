package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// Follow yields the tickets of the queue in order, first as they are and then after every
// change, however short it lasted. It ends with ctx, with the loop over it, or with an error when the
// client is closed. It needs no ticket and, if the source is a Session or a Keeper, no live session.
//
// Trouble with etcd is not reported but waited out, and nothing is left out because of it,
// unless the revisions in between have been compacted, or etcd has gone back to an earlier one, as after
// a restore: then the change is yielded within about 10 s. An error is yielded, without tickets,
// if etcd refuses to be read or watched; Follow goes on trying, with pauses, unless the loop
// is left.
//
// It costs one read and one watch on the whole queue, and another read about every 10 s; each
// change is sent to every follower, so there should be few of a queue with many tickets.
func (q *Queue) Follow(ctx context.Context) iter.Seq2[[]Entry, error] {
	needContext(ctx)
	return func(yield func([]Entry, error) bool) {
		f := &follower{queue: q, yield: yield}
		for failures := 0; ctx.Err() == nil; {
			client, err := q.client(ctx)
			if err == nil {
				err = f.follow(ctx, client)
			}
			switch {
			case f.stopped || ctx.Err() != nil:
				return
			case err == nil:
				failures = 0
				continue
			}
			if client != nil {
				if closed := request.CheckClient(client); closed != nil {
					f.report(nil, closed)
					return
				}
			}
			if !request.Passing(err) && !errors.Is(err, errEnded) && !f.report(nil, q.failed(err)) {
				return
			}
			request.Sleep(ctx, ctx, backOff(failures))
			failures++
		}
	}
}

// follower is a copy of the queue that is kept up with it.
type follower struct {
	queue   *Queue
	yield   func([]Entry, error) bool
	stopped bool // by the loop over it
	failed  bool // the last watch was not created

	state map[string]Entry // by key
	at    int64            // revision
}

func (f *follower) report(entries []Entry, err error) bool {
	f.stopped = f.stopped || !f.yield(entries, err)
	return !f.stopped
}

// follow goes on with one watch until it has to be replaced.
func (f *follower) follow(ctx context.Context, client *clientv3.Client) error {
	if f.state == nil {
		state, at, err := f.queue.list(ctx, client)
		if err != nil {
			return err
		}
		f.state, f.at = state, at
		if !f.report(f.sorted(), nil) {
			return nil
		}
	}
	all, streams := f.queue.space.all(), link.StreamsOf(client)
	watch, err := streams.Open(ctx, client, firstCreation, all.first, clientv3.WithRange(all.end), clientv3.WithRev(f.at+1))
	if err != nil {
		return f.ended(ctx, client, err)
	}
	defer watch.Stop()
	f.failed = false
	for {
		silence := time.NewTimer(request.Jitter(f.queue.options.recheck()))
		select {
		case response, ok := <-watch.Events:
			silence.Stop()
			if err := response.Err(); !ok || err != nil {
				return f.ended(ctx, client, cmp.Or(err, errEnded))
			}
			if !f.apply(response.Events) {
				return nil
			}
		case <-watch.Ended: // its stream was left
			silence.Stop()
			return errEnded
		case <-silence.C:
			complete, err := f.check(ctx, client)
			if err == nil && !complete {
				streams.LeaveStream(watch.Stream)
			}
			if err != nil || !complete {
				return err
			}
		}
	}
}

// ended is about the error of a watch. A compaction is made up for with a read. A refusal counts the second time, since
// the stream may be at fault, and another one has been chosen.
func (f *follower) ended(ctx context.Context, client *clientv3.Client, err error) error {
	if request.IsAnswer(err, rpctypes.ErrCompacted) {
		state, at, err := f.queue.list(ctx, client)
		if err == nil {
			f.restart(state, at)
		}
		return err
	}
	if !f.failed && !request.Passing(err) {
		f.failed = true
		return errEnded
	}
	return err
}

// check reports whether the watch has delivered every event. If not, it missed some or is about to deliver them, and
// another one delivers what happened since, step by step; unless etcd has gone back.
func (f *follower) check(ctx context.Context, client *clientv3.Client) (complete bool, err error) {
	state, at, err := f.queue.list(ctx, client)
	if err != nil {
		return false, err
	}
	continues := at >= f.at // than which no answer of the quorum was older
	if continues && maps.EqualFunc(state, f.state, sameEntry) {
		return true, nil
	}
	if continues {
		if continues, err = f.continues(ctx, client); err != nil {
			return false, err
		}
	}
	if !continues {
		f.restart(state, at)
	}
	return false, nil
}

// restart is for missing events that cannot be had: the history has been compacted, or replaced.
func (f *follower) restart(state map[string]Entry, at int64) {
	changed := !maps.EqualFunc(state, f.state, sameEntry)
	f.state, f.at = state, at
	if changed {
		f.report(f.sorted(), nil)
	}
}

// continues reports whether etcd's history follows on f's. It does not after a restore of a backup, even if that has
// come further again.
func (f *follower) continues(ctx context.Context, client *clientv3.Client) (bool, error) {
	kvs, _, err := f.queue.read(ctx, client, clientv3.WithRev(f.at))
	if request.IsAnswer(err, rpctypes.ErrCompacted) || request.IsAnswer(err, rpctypes.ErrFutureRev) {
		return false, nil
	}
	return maps.EqualFunc(f.queue.state(kvs), f.state, sameEntry), err
}

// apply takes events in, and yields once for each revision that changed something here.
func (f *follower) apply(events []*clientv3.Event) bool {
	changed := false
	for i, event := range events {
		revision := event.Kv.ModRevision
		if revision <= f.at {
			continue
		}
		if e, ok := f.queue.entry(event.Kv); !ok {
			// Of another queue.
		} else if changed = true; event.Type == clientv3.EventTypeDelete {
			delete(f.state, e.Key)
		} else {
			f.state[e.Key] = e
		}
		if i < len(events)-1 && events[i+1].Kv.ModRevision == revision {
			continue
		}
		f.at = revision
		if changed && !f.report(f.sorted(), nil) {
			return false
		}
		changed = false
	}
	return true
}

func (f *follower) sorted() []Entry {
	return slices.SortedFunc(maps.Values(f.state), byRevision)
}

func byRevision(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) }

func sameEntry(a, b Entry) bool { return a.Revision == b.Revision && a.version == b.version }
