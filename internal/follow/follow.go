// Package follow keeps a copy of the keys of a range up to date.
//
// Invariants:
//
//  1. A [Sink] gets all keys as they were at one revision, and then every change, in the order of revisions, each once.
//  2. If changes cannot be had, since they were compacted or etcd has gone back to an earlier revision, the sink gets
//     all keys again, unless they are the same.
//  3. No single event is needed: about every [Range.Recheck] the copy is compared with etcd.
package follow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// pageSize is how many keys are read in a request.
	pageSize = 500

	// creationLimit bounds the wait until etcd confirms a watch.
	creationLimit = 5 * time.Second

	// deliveryLimit bounds the wait for what is missing. A watch that begins in the past takes about 100 ms.
	deliveryLimit = 3 * time.Second
)

// Range is what is followed: the keys from First to just before End.
type Range struct {
	Client     *clientv3.Client
	First, End string

	// Recheck is how often the keys are read, without their values, give or take half.
	Recheck time.Duration

	// CaughtUp, unless it is nil, is called when the sink knows all keys and the watch goes on: at first, and again after
	// each failure that the sink was told. The goroutine is that of the sink's methods.
	CaughtUp func()
}

// Sink gets what is known of a range. Its methods are called in the goroutine of [Range.Follow], which waits for them.
type Sink interface {
	// Replace gets all keys.
	Replace(kvs []*mvccpb.KeyValue)
	// Apply gets all changes of one revision.
	Apply(events []*clientv3.Event)
	// Fail gets an answer of etcd that will not change by itself, such as permission denied. Attempts go on. After
	// [request.ErrClientClosed] nothing follows.
	Fail(err error)
}

// Read reads all keys at a revision, and returns that. If it is 0, the newest one, and compacted between the pages, the
// reading begins again.
func (r Range) Read(ctx context.Context, revision int64, options ...clientv3.OpOption) (kvs []*mvccpb.KeyValue, at int64, err error) {
	if err := request.CheckClient(r.Client); err != nil {
		return nil, 0, err // etcd's client would try for seconds
	}
	next, at := r.First, revision
	for {
		var page *clientv3.GetResponse
		where := append(slices.Clip(options), clientv3.WithRange(r.End), clientv3.WithRev(at), clientv3.WithLimit(pageSize))
		err := request.Do(ctx, ctx, func(ctx context.Context) (err error) {
			page, err = r.Client.Get(ctx, next, where...)
			return err
		})
		switch {
		case pastRevision(err) && at > revision:
			next, at, kvs = r.First, revision, nil
			continue
		case err != nil:
			return nil, 0, err
		case at == 0:
			at = page.Header.Revision
		}
		if kvs = append(kvs, page.Kvs...); !page.More {
			return kvs, at, nil
		}
		next = string(kvs[len(kvs)-1].Key) + "\x00"
	}
}

// pastRevision reports whether etcd cannot read at a revision any more: it was compacted, or etcd went back.
func pastRevision(err error) bool {
	return request.IsAnswer(err, rpctypes.ErrCompacted) || request.IsAnswer(err, rpctypes.ErrFutureRev)
}

// Follow tells sink of the keys of r until ctx ends or the client is closed. Trouble that may pass is not reported. It
// costs a read of all keys, another one without values about every Recheck, and one watch of all, on the stream that
// the sessions of the client use.
func (r Range) Follow(ctx context.Context, sink Sink) {
	f := &follower{Range: r, sink: sink}
	for failures := 0; ctx.Err() == nil; {
		err := f.follow(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if closed := request.CheckClient(r.Client); closed != nil {
			sink.Fail(closed)
			return
		}
		if ctx.Err() == nil && request.Refused(err) {
			sink.Fail(err)
			f.read, f.caughtUp = false, false
		}
		request.Sleep(ctx, ctx, request.BackOff(failures))
		failures++
	}
}

// version tells a key from an earlier one of its name, and a value from an earlier one.
type version struct{ created, modified int64 }

type follower struct {
	Range
	sink Sink

	versions map[string]version // that the sink knows
	at       int64              // revision of that; 0: everything is to be read
	refused  bool               // the last watch was
	read     bool               // the keys were, since the last failure that the sink was told
	caughtUp bool               // and the sink was told that, too
	missing  time.Time          // since when events are missing and none arrives; zero: none is
}

var errEnded = errors.New("the watch ended")

// follow goes on with one watch until it has to be replaced.
func (f *follower) follow(ctx context.Context) error {
	if f.at == 0 {
		if err := f.load(ctx); err != nil {
			return err
		}
	}
	streams := link.StreamsOf(f.Client)
	watch, err := streams.Open(ctx, f.Client, creationLimit, f.First, clientv3.WithRange(f.End), clientv3.WithRev(f.at+1))
	if err != nil {
		return f.ended(err)
	}
	defer watch.Stop()
	f.refused = false
	f.reportCaughtUp()
	interval := f.Recheck
	if !f.missing.IsZero() || !f.caughtUp {
		interval = min(interval, deliveryLimit/3)
	}
	recheck := time.NewTimer(request.Jitter(interval))
	defer recheck.Stop()
	for silent := true; ; {
		select {
		case response, ok := <-watch.Events:
			if err := response.Err(); !ok || err != nil {
				return f.ended(cmp.Or(err, errEnded))
			}
			silent = silent && len(response.Events) == 0
			f.apply(ctx, response.Events)
		case <-watch.Ended: // its stream was left
			return errEnded
		case <-recheck.C:
			complete, err := f.check(ctx, silent)
			if err == nil && !complete && silent {
				streams.LeaveStream(watch.Stream)
			}
			if err != nil {
				return err
			}
			f.read = true
			if !complete {
				return nil
			}
			f.reportCaughtUp()
			recheck.Reset(request.Jitter(f.Recheck))
			silent = true
		}
	}
}

func (f *follower) reportCaughtUp() {
	if f.read && !f.caughtUp {
		f.caughtUp = true
		if f.CaughtUp != nil {
			f.CaughtUp()
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
		return errEnded
	}
	return err
}

// apply takes in events. All of a revision arrive together.
func (f *follower) apply(ctx context.Context, events []*clientv3.Event) {
	for len(events) > 0 && ctx.Err() == nil {
		revision, end := events[0].Kv.ModRevision, 1
		for end < len(events) && events[end].Kv.ModRevision == revision {
			end++
		}
		if revision > f.at {
			f.at, f.missing = revision, time.Time{}
			for _, event := range events[:end] {
				if event.Type == clientv3.EventTypeDelete {
					delete(f.versions, string(event.Kv.Key))
				} else {
					f.versions[string(event.Kv.Key)] = versionOf(event.Kv)
				}
			}
			f.sink.Apply(events[:end])
		}
		events = events[end:]
	}
}

// check reads the keys, and reports whether all changes have been delivered. If not, they are on their way, or missing,
// and another watch delivers them. It cannot after a compaction, nor after a restore of a backup, even if etcd has come
// further again. Then everything is read again, and so it is if other watches have been silent too.
func (f *follower) check(ctx context.Context, silent bool) (complete bool, err error) {
	kvs, at, err := f.Read(ctx, 0, clientv3.WithKeysOnly())
	if err != nil {
		return false, err
	}
	if at >= f.at && maps.Equal(versionsOf(kvs), f.versions) { // no answer of the quorum is older than an earlier one
		f.missing = time.Time{}
		return true, nil
	}
	if silent && f.missing.IsZero() {
		f.missing = time.Now()
	}
	kvs, _, err = f.Read(ctx, f.at, clientv3.WithKeysOnly())
	overdue := !f.missing.IsZero() && time.Since(f.missing) > deliveryLimit
	if overdue || pastRevision(err) || err == nil && !maps.Equal(versionsOf(kvs), f.versions) {
		f.at = 0
		return false, nil
	}
	return false, err
}

// load reads everything.
func (f *follower) load(ctx context.Context) error {
	kvs, at, err := f.Read(ctx, 0)
	if err != nil {
		return err
	}
	versions := versionsOf(kvs)
	if f.versions == nil || !maps.Equal(versions, f.versions) {
		f.sink.Replace(kvs)
	}
	f.versions, f.at, f.missing, f.read = versions, at, time.Time{}, true
	return nil
}

func versionOf(kv *mvccpb.KeyValue) version { return version{kv.CreateRevision, kv.ModRevision} }

func versionsOf(kvs []*mvccpb.KeyValue) map[string]version {
	versions := make(map[string]version, len(kvs))
	for _, kv := range kvs {
		versions[string(kv.Key)] = versionOf(kv)
	}
	return versions
}
