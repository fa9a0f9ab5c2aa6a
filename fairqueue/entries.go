package fairqueue

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

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

// read reads the whole queue.
func (q *Queue) read(ctx context.Context, client *clientv3.Client) (kvs []*mvccpb.KeyValue, err error) {
	all := q.space.all()
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Get(ctx, all.first, clientv3.WithRange(all.end))
		if err == nil {
			kvs = answer.Kvs
		}
		return err
	})
	return kvs, err
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

// Parse returns what [Queue.Entries] of the queue at prefix would, from keys that were read at one revision. Keys of
// other queues are left out. It makes no request.
func Parse(prefix string, kvs []*mvccpb.KeyValue) (entries []Entry, size int64) {
	return (&Queue{space: space(prefix + "/")}).parse(kvs)
}

func (q *Queue) parse(kvs []*mvccpb.KeyValue) (entries []Entry, size int64) {
	size = q.space.sizeIn(entriesOf(kvs))
	entries = sorted(q.state(kvs))
	for i := range owning(entries, size) {
		entries[i].Owns = true
	}
	return entries, size
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
