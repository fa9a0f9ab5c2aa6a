package coord

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/follow"
	"github.com/etcdlock/locks/internal/request"
)

// await follows the keys from first to just before end until see returns true or an error, etcd refuses to be read, or ctx
// ends. see gets every state, or the latest.
func await(ctx context.Context, client *clientv3.Client, first, end string, see func(keys map[string]*mvccpb.KeyValue) (over bool, err error)) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	a := &awaited{see: see, stop: stop}
	follow.Range{Client: client, First: first, End: end, Recheck: recheck}.Follow(following, a)
	if a.over || a.err != nil {
		return a.err
	}
	return request.Ended(ctx, nil)
}

// awaited is what an await has seen. Its methods are called by one goroutine.
type awaited struct {
	keys map[string]*mvccpb.KeyValue
	see  func(map[string]*mvccpb.KeyValue) (bool, error)
	stop func()

	over bool
	err  error
}

// Replace implements [follow.Sink].
func (a *awaited) Replace(kvs []*mvccpb.KeyValue) {
	a.keys = make(map[string]*mvccpb.KeyValue, len(kvs))
	for _, kv := range kvs {
		a.keys[string(kv.Key)] = kv
	}
	a.look()
}

// Apply implements [follow.Sink].
func (a *awaited) Apply(events []*clientv3.Event) {
	for _, event := range events {
		if event.Type == clientv3.EventTypePut {
			a.keys[string(event.Kv.Key)] = event.Kv
		} else {
			delete(a.keys, string(event.Kv.Key))
		}
	}
	a.look()
}

// Fail implements [follow.Sink].
func (a *awaited) Fail(err error) {
	if !a.over {
		a.err = err
		a.stop()
	}
}

func (a *awaited) look() {
	if a.over || a.err != nil {
		return
	}
	if a.over, a.err = a.see(a.keys); a.over || a.err != nil {
		a.stop()
	}
}
