package link

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// keepFor is how long a watch is kept that nobody uses: longer than waiters that take turns at
	// something contended need to come back.
	keepFor = time.Second

	// keepLimit is how many a session keeps.
	keepLimit = 64

	// openLimit is how long the watch that keeps a stream open may take to begin.
	openLimit = 10 * time.Second
)

// Watch is a watch for one goroutine, which stops or keeps it.
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

	header *etcdserverpb.ResponseHeader // of the confirmation
	stop   context.CancelFunc

	link   *Link // nil if the watch cannot be kept
	name   string
	expiry *time.Timer // runs while it is kept
}

// Watch watches key from now on, until the session ends. It returns when the watch stands, one round trip, or at once
// one of the same name that has been kept. Names are the caller's; an empty one is not kept.
//
// An error says that ctx, the session or limit ended before, or what etcd said; later watches use
// another stream. Once the watch stands, ctx does not matter any more. Safe for concurrent use.
func (l *Link) Watch(ctx context.Context, limit time.Duration, name, key string, options ...clientv3.OpOption) (*Watch, error) {
	request.NeedContext(ctx)
	if l.ctx.Err() != nil {
		return nil, context.Cause(l.ctx)
	}
	if w := l.takeKept(name); w != nil {
		return w, nil
	}
	until, stop := context.WithCancel(l.ctx)
	given := context.AfterFunc(ctx, stop)
	w, err := l.Open(until, l.client, limit, key, options...)
	if err == nil {
		err = l.Observe(w.header)
	}
	stands := given() && err == nil
	switch {
	case l.ctx.Err() != nil:
		err = context.Cause(l.ctx)
	case stands:
		w.link, w.name, w.stop = l, name, stop
		l.keepStream(key)
		return w, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	stop()
	return nil, err
}

// Stop ends the watch: one message to etcd.
func (w *Watch) Stop() { w.stop() }

// Keep leaves the watch to the next caller that wants one of its name, within a second, and ends it
// otherwise. Until is the revision of the last event that the caller has seen. w must not be used any more.
//
// Waiters that take turns at a lock wait for the same keys again and again. To end a watch and begin the next costs a
// client and etcd about as much as a write; more if there is no other watch, since the stream ends
// with its last one. A session keeps up to 64, one of each name.
func (w *Watch) Keep(until int64) {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.name == "" || l.ctx.Err() != nil || l.kept[w.name] != nil || len(l.kept) == keepLimit {
		w.stop()
		return
	}
	w.From, w.Kept = max(w.From, until), true
	l.kept[w.name] = w
	w.expiry = time.AfterFunc(keepFor, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.kept[w.name] == w {
			delete(l.kept, w.name)
			w.stop()
		}
	})
}

// takeKept returns a watch that has been kept under name, or nil.
func (l *Link) takeKept(name string) *Watch {
	l.mu.Lock()
	w := l.kept[name]
	delete(l.kept, name)
	l.mu.Unlock()
	if w != nil {
		w.expiry.Stop()
		if l.left(w.Stream) {
			w.stop()
			return nil
		}
	}
	return w
}

// keepStream keeps the current stream open while no other watch uses it, until the session ends or leaves it:
// the client of a user with a password authenticates for every stream that it opens. For that there
// is a watch that never tells anything, on key, which the user may read.
func (l *Link) keepStream(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client.Username == "" || l.keeps {
		return
	}
	l.keeps = l.Start(func(ctx context.Context) {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.keeps = false
		}()
		standing, end := request.Grace(ctx) // the client logs it if a stream ends while it authenticates for it
		defer end()
		w, err := l.Open(standing, l.client, openLimit, key, clientv3.WithFilterPut(), clientv3.WithFilterDelete(),
			clientv3.WithProgressNotify()) // so that after a disconnection etcd need not look far back
		if err != nil {
			return
		}
		defer w.Stop()
		for ok := true; ok; {
			select {
			case _, ok = <-w.Events:
			case <-w.Ended:
				ok = false
			case <-ctx.Done():
				ok = false
			}
		}
	})
}
