package link

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// keepFor is how long a watch is kept that nobody uses: longer than waiters that take turns at
	// something contended need to come back.
	keepFor = time.Second

	// keepLimit is how many a session keeps.
	keepLimit = 64
)

// Watch is a watch on behalf of a session, for one goroutine, which stops or keeps it.
type Watch struct {
	// Events is closed when the watch cannot go on. If the network is silent, it may stay open although
	// the session has ended or the stream was left: then Ended is closed.
	Events clientv3.WatchChan
	Ended  <-chan struct{}

	// From is a revision after which nothing is left out that happens and was asked for.
	From int64

	// Stream is the number of its stream, for LeaveStream.
	Stream int64

	// Kept says that somebody else has used it before. So it may have ended since, or be silent:
	// nothing has been heard of it just now, as of a new one.
	Kept bool

	link  *Link
	name  string
	stop  context.CancelFunc
	since time.Time // when it was kept
}

// Watch watches key from now on. It returns when the watch stands, one round trip, or at once one
// of the same name that has been kept. Names are the caller's; an empty one is not kept.
//
// An error says that ctx, the session or limit ended before, or what etcd said; later watches use
// another stream. Once the watch stands, ctx does not matter any more, and nothing that it carries
// travels: all watches of a session share a stream. Safe for concurrent use.
func (l *Link) Watch(ctx context.Context, limit time.Duration, name, key string, options ...clientv3.OpOption) (*Watch, error) {
	request.NeedContext(ctx)
	if l.ctx.Err() != nil {
		return nil, context.Cause(l.ctx)
	}
	if name != "" {
		if w := l.takeKept(name); w != nil {
			return w, nil
		}
	}
	base, stop := context.WithCancel(l.ctx)
	w := &Watch{link: l, name: name, stop: stop}
	base, w.Stream = l.WatchContext(base)
	w.Ended = base.Done()
	l.Asked(w.Stream)
	// Watch itself blocks until the watch stands, so what bounds it must be able to end its context.
	given := context.AfterFunc(ctx, stop)
	tooLong := time.AfterFunc(limit, stop)
	w.Events = l.client.Watch(base, key, append(slices.Clip(options), clientv3.WithCreatedNotify())...)
	created, ok := <-w.Events
	inTime := tooLong.Stop()
	err := created.Err()
	switch {
	case !ok:
		l.Unanswered(w.Stream, limit)
	case err != nil:
		l.Answered(w.Stream)
		// It may be the stream's fault: it keeps the token that it was opened with, and carries no new watches
		// when that has expired.
		l.LeaveStream(w.Stream)
	default:
		l.Answered(w.Stream)
		err = l.Observe(created.Header)
	}
	stands := inTime && ok && err == nil
	if given() && stands && l.ctx.Err() == nil {
		w.From = created.Header.Revision
		l.keepStream(w.Stream, key)
		return w, nil
	}
	stop()
	switch {
	case l.ctx.Err() != nil:
		return nil, context.Cause(l.ctx)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !inTime:
		return nil, errors.New("the watch was not created in time")
	}
	return nil, errors.Join(errors.New("the watch was not created"), err)
}

// Stop ends the watch: one message to etcd.
func (w *Watch) Stop() { w.stop() }

// Keep leaves the watch to the next caller that wants one of its name, within a second, and ends it
// otherwise. Until is the revision of the last event that the caller has seen. w must not be used any more.
//
// Waiters that take turns at a lock wait for the same keys again and again. To end a watch and begin the next costs a
// client and etcd about as much as a write; more if there is no other watch, since the stream ends
// with its last one. A session keeps the latest 64.
func (w *Watch) Keep(until int64) {
	w.From, w.since, w.Kept = max(w.From, until), time.Now(), true
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.name == "" || l.ctx.Err() != nil {
		w.stop()
		return
	}
	if len(l.kept) == keepLimit {
		l.kept[0].stop()
		l.kept = slices.Delete(l.kept, 0, 1)
	}
	if l.kept = append(l.kept, w); len(l.kept) > 1 {
		return
	}
	if l.expiry == nil {
		l.expiry = time.AfterFunc(keepFor, l.dropKept)
	} else {
		l.expiry.Reset(keepFor)
	}
}

// takeKept returns a watch that has been kept under name, or nil.
func (l *Link) takeKept(name string) *Watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.kept, func(w *Watch) bool { return w.name == name })
	if i < 0 {
		return nil
	}
	w := l.kept[i]
	l.kept = slices.Delete(l.kept, i, i+1)
	if l.left(w.Stream) {
		w.stop()
		return nil
	}
	return w
}

// dropKept ends those that nobody wanted in time.
func (l *Link) dropKept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.kept = slices.DeleteFunc(l.kept, func(w *Watch) bool {
		old := now.Sub(w.since) >= keepFor
		if old {
			w.stop()
		}
		return old
	})
	if len(l.kept) > 0 {
		l.expiry.Reset(l.kept[0].since.Add(keepFor).Sub(now))
	}
}
