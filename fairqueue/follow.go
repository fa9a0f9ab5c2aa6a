package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Follow yields the tickets of the queue in order, first as they are and then after every
// change, however short it lasted. It ends with ctx, with the loop over it, or with an error when the
// client is closed. It needs no ticket and, if the source is a Session or a Keeper, no live session.
//
// Trouble with etcd is not reported but waited out, and nothing is left out because of it,
// unless the revisions in between have been compacted. An error is yielded, without tickets,
// if etcd refuses to be read or watched; Follow goes on trying, with pauses, unless the loop
// is left.
//
// It costs one read and one watch on the whole queue, and another read about every 10 s; each
// change is told to every follower, so there should be few of a queue with many tickets.
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
				if closed := session.CheckClient(client); closed != nil {
					f.tell(nil, closed)
					return
				}
			}
			if !session.Passing(err) && !errors.Is(err, errEnded) && !f.tell(nil, denied(q.source, err, q.space)) {
				return
			}
			timer := time.NewTimer(around(min(firstPause<<min(failures, 10), longPause)))
			failures++
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// follower is a copy of the queue that is kept up with it.
type follower struct {
	queue   *Queue
	yield   func([]Entry, error) bool
	stopped bool // by whom it yields to
	streams session.Streams
	refused bool // the last watch that was asked for

	state map[string]Entry // by key
	at    int64            // revision
}

func (f *follower) tell(entries []Entry, err error) bool {
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
		if !f.tell(f.sorted(), nil) {
			return nil
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watchCtx, stream := f.streams.WatchContext(ctx)
	tooLong := time.AfterFunc(firstCreation, stop)
	defer tooLong.Stop()
	all := f.queue.space.all()
	events := client.Watch(watchCtx, all.first, clientv3.WithRange(all.end), clientv3.WithRev(f.at+1), clientv3.WithCreatedNotify())
	created, ok := <-events
	if !tooLong.Stop() {
		f.streams.LeaveStream(stream)
		return context.DeadlineExceeded
	}
	if err := created.Err(); err != nil && created.CompactRevision == 0 && !f.refused {
		// It may be the stream's fault: it keeps the token that it was opened with, and
		// carries no new watches when that has expired. Another one will show.
		f.refused = true
		f.streams.LeaveStream(stream)
		return errEnded
	}
	f.refused = created.Err() != nil
	for response := created; ; {
		if err := response.Err(); !ok || err != nil {
			if response.CompactRevision > 0 {
				return f.restart(ctx, client)
			}
			return cmp.Or(err, errEnded)
		}
		if !f.apply(response.Events) {
			return nil
		}
		silence := time.NewTimer(around(f.queue.recheck))
		select {
		case response, ok = <-events:
			silence.Stop()
		case <-silence.C:
			state, _, err := f.queue.list(ctx, client)
			if err != nil {
				return err
			}
			if !maps.EqualFunc(state, f.state, sameEntry) {
				// The watch missed something, or is about to tell it. Another one tells
				// what happened since, step by step.
				f.streams.LeaveStream(stream)
				return nil
			}
			response, ok = clientv3.WatchResponse{}, true
		}
	}
}

var errEnded = errors.New("the watch ended")

// restart is for when history is no more: what is missing cannot be had.
func (f *follower) restart(ctx context.Context, client *clientv3.Client) error {
	state, at, err := f.queue.list(ctx, client)
	if err != nil {
		return err
	}
	changed := !maps.EqualFunc(state, f.state, sameEntry)
	f.state, f.at = state, at
	if changed {
		f.tell(f.sorted(), nil)
	}
	return nil
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
		if changed && !f.tell(f.sorted(), nil) {
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

// client is the one to make requests with that need no session.
func (q *Queue) client(ctx context.Context) (*clientv3.Client, error) {
	needContext(ctx)
	if q.source == nil {
		panic("etcdlock: a queue is made with New")
	}
	if has, ok := q.source.(interface{ Client() *clientv3.Client }); ok {
		return has.Client(), nil
	}
	s, err := q.source.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.Client(), nil
}

// list reads the whole queue, at one revision.
func (q *Queue) list(ctx context.Context, client *clientv3.Client) (map[string]Entry, int64, error) {
	kvs, at, err := q.read(ctx, client)
	return q.state(kvs), at, err
}

func (q *Queue) read(ctx context.Context, client *clientv3.Client) (kvs []*mvccpb.KeyValue, at int64, err error) {
	all := q.space.all()
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Get(ctx, all.first, clientv3.WithRange(all.end))
		if err == nil {
			kvs, at = answer.Kvs, answer.Header.Revision
		}
		return err
	})
	return kvs, at, session.Explain(client, err)
}

func (q *Queue) state(kvs []*mvccpb.KeyValue) map[string]Entry {
	state := make(map[string]Entry, len(kvs))
	for _, kv := range kvs {
		if e, ok := q.entry(kv); ok {
			state[e.Key] = e
		}
	}
	return state
}

func (q *Queue) entry(kv *mvccpb.KeyValue) (Entry, bool) {
	key := string(kv.Key)
	mode, ok := q.space.mode(key)
	e := Entry{Key: key, Revision: kv.CreateRevision, Mode: mode, Lease: clientv3.LeaseID(kv.Lease), Value: kv.Value, version: kv.ModRevision}
	_, number, ours := q.space.parts(key)
	e.Foreign = !ours
	switch {
	case ours && mode == permit:
		e.Weight = number
	case ours && mode == Candidate:
		e.Priority = int(number)
	}
	if mode != Candidate {
		e.Owner = parseOwner(kv.Value)
	}
	return e, ok
}
