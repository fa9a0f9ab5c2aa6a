package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// ErrBusy is what [Queue.TryJoin] returns if it would have to wait. Nothing is left
// of the attempt. Do something else, or Join.
var ErrBusy = errors.New("etcdlock: busy")

// Queue is one line of tickets in etcd, named by its prefix. It holds no state of
// its own: any number of Queue values with the same prefix are the same queue. It
// is safe for concurrent use.
type Queue struct {
	source  session.Source
	space   space
	start   clientv3.Op // reads the queue, as far as a join brings it back
	owner   string      // template of its tickets' values
	recheck time.Duration
}

// New returns the queue at prefix, which gets a slash appended; tickets are bound
// to sessions from source. No request is made. A nil source panics.
func New(source session.Source, prefix string, opts ...Option) *Queue {
	if source == nil || source == (*session.Session)(nil) || source == (*session.Keeper)(nil) {
		panic("etcdlock: a queue needs a session source")
	}
	o := options{recheck: defaultRecheck}
	for _, opt := range opts {
		opt.apply(&o)
	}
	space := space(prefix + "/")
	all := space.all()
	return &Queue{
		source: source,
		space:  space,
		start: clientv3.OpGet(all.first, clientv3.WithRange(all.end), clientv3.WithLimit(joinLimit),
			clientv3.WithKeysOnly()),
		owner:   thisProcess(o.label).template(),
		recheck: o.recheck,
	}
}

// Entry is a ticket as others see it.
type Entry struct {
	Key      string
	Revision int64 // create revision: the place in line, and the fencing token
	Mode     Mode
	Lease    clientv3.LeaseID
	Owner    Owner // zero if the ticket is of another kind than ours
	Value    []byte
}

// Entries lists the tickets in order, as of one moment: one linearizable read of
// the whole queue, through a session from the source, which a Keeper may have to
// create first. The first entry owns, and the shared ones that follow it
// without a gap if it is shared.
func (q *Queue) Entries(ctx context.Context) ([]Entry, error) {
	s, err := q.source.Session(ctx)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", q.space, err)
	}
	var answer *clientv3.GetResponse
	all := q.space.all()
	err = s.Call(ctx, func(ctx context.Context) (err error) {
		answer, err = s.Client().Get(ctx, all.first, clientv3.WithRange(all.end))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", q.space, err)
	}
	var entries []Entry
	for _, kv := range answer.Kvs {
		if e, ok := q.entry(kv); ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return entries, nil
}

func (q *Queue) entry(kv *mvccpb.KeyValue) (Entry, bool) {
	mode, ok := q.space.mode(string(kv.Key))
	return Entry{
		Key:      string(kv.Key),
		Revision: kv.CreateRevision,
		Mode:     mode,
		Lease:    clientv3.LeaseID(kv.Lease),
		Owner:    parseOwner(kv.Value),
		Value:    kv.Value,
	}, ok
}
