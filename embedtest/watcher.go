package embedtest

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var errNoProgress = errors.New("embedtest: RequestProgress is not offered in virtual time")

// watcher replaces etcd's own in virtual time. etcd's has a goroutine per stream that waits for a
// channel in a package's variable. The channel was not made inside the bubble, so to package
// synctest the goroutine never counts as blocked, and time would stand still while there
// is a watch.
//
// Callers see the same behaviour, with the exceptions in doc.go. Each watch has its own stream.
type watcher struct {
	remote etcdserverpb.WatchClient

	mu      sync.Mutex
	ends    map[*watch]context.CancelFunc // nil after Close
	running sync.WaitGroup
}

func newWatcher(remote etcdserverpb.WatchClient) *watcher {
	return &watcher{remote: remote, ends: map[*watch]context.CancelFunc{}}
}

// Watch returns when the watch stands, or when it will not: then the channel says why.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpWatch(key, opts...)
	request := &etcdserverpb.WatchCreateRequest{
		Key: op.KeyBytes(), RangeEnd: op.RangeBytes(), StartRevision: op.Rev(),
		PrevKv: op.IsPrevKV(), ProgressNotify: op.IsProgressNotify(),
	}
	if op.IsFilterPut() {
		request.Filters = append(request.Filters, etcdserverpb.WatchCreateRequest_NOPUT)
	}
	if op.IsFilterDelete() {
		request.Filters = append(request.Filters, etcdserverpb.WatchCreateRequest_NODELETE)
	}
	one := newWatch(request, op.IsCreatedNotify())

	w.mu.Lock()
	if w.ends == nil || ctx.Err() != nil {
		w.mu.Unlock()
		close(one.events)
		return one.events
	}
	// Values only: a deadline would travel to the server, and etcd's client keeps it back.
	streamCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	w.ends[one] = end
	w.running.Go(func() {
		defer w.drop(one)
		defer context.AfterFunc(ctx, end)()
		var delivering sync.WaitGroup
		delivering.Go(func() { one.deliver(streamCtx) })
		one.receive(streamCtx, w.remote)
		one.decide()
		delivering.Wait()
		close(one.events)
	})
	w.mu.Unlock()
	<-one.decided
	return one.events
}

func (w *watcher) drop(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.ends[one]; end != nil {
		end()
		delete(w.ends, one)
	}
}

// RequestProgress always fails.
func (w *watcher) RequestProgress(context.Context) error { return errNoProgress }

// Close ends all watches.
func (w *watcher) Close() error {
	w.mu.Lock()
	ends := w.ends
	w.ends = nil
	w.mu.Unlock()
	for _, end := range ends {
		end()
	}
	w.running.Wait()
	return nil
}
