package versions

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queue is one that members of several kinds share.
type queue struct {
	e      *etcd
	admin  *clientv3.Client
	prefix string
	owners atomic.Int32 // how many believe that they own it
}

func newQueue(t *testing.T, e *etcd) *queue {
	t.Helper()
	return &queue{e: e, admin: e.client(t), prefix: name(t)}
}

// place is a member in the queue.
type place struct {
	member
	kind  string
	queue *queue
	kv    *mvccpb.KeyValue // its key, as soon as it has joined
	owned chan got[string] // its key, when it owns
	owns  bool
	dead  atomic.Bool
}

// join puts a member at the end of the line.
func (q *queue) join(t *testing.T, k kind) *place {
	t.Helper()
	p := &place{member: k.open(t, q.e, q.prefix), kind: k.name, queue: q, owned: make(chan got[string], 1)}
	before := int64(0)
	if last := q.end(t, clientv3.SortDescend); last != nil {
		before = last.CreateRevision
	}
	ctx := t.Context()
	go func() {
		key, err := p.own(ctx)
		p.owned <- got[string]{key, err}
	}()
	eventually(t, k.name+" to join", func() bool {
		p.kv = q.end(t, clientv3.SortDescend)
		return p.kv != nil && p.kv.CreateRevision > before
	})
	return p
}

// own waits until the member owns, and checks that nobody else can.
func (p *place) own(ctx context.Context) (string, error) {
	key, err := p.acquire(ctx)
	switch {
	case p.dead.Load():
		return key, nil // what it believes does not count
	case err != nil:
		return key, fmt.Errorf("%s: %w", p.kind, err)
	case p.queue.owners.Add(1) != 1:
		return key, fmt.Errorf("%s owns at the same time as another", p.kind)
	}
	first, err := p.queue.first(ctx, clientv3.SortAscend)
	if err == nil && (first == nil || string(first.Key) != key) {
		err = fmt.Errorf("%s owns with %s, and first in line is %s", p.kind, key, first)
	}
	return key, err
}

// awaitTurn waits until the member owns.
func (p *place) awaitTurn(t *testing.T) {
	t.Helper()
	require.Equal(t, string(p.kv.Key), taken(t, p.kind+" to own", p.owned))
	p.owns = true
}

// waits requires that the member does not own yet.
func (p *place) waits(t *testing.T) {
	t.Helper()
	require.Empty(t, p.owned, "%s does not wait any more", p.kind)
}

// leave releases what the member owns.
func (p *place) leave(t *testing.T) {
	t.Helper()
	p.queue.owners.Add(-1)
	require.NoError(t, p.release(within(t)), p.kind)
}

// crash ends the member as a crash does, without a request to etcd. Its lease stays.
func (p *place) crash() {
	p.dead.Store(true)
	if p.owns {
		p.queue.owners.Add(-1)
	}
	if p.kill != nil {
		p.kill()
	}
}

// die crashes, and lets the lease be over at once instead of some time later.
func (p *place) die(t *testing.T) {
	t.Helper()
	p.crash()
	revoke(t, p.queue.admin, clientv3.LeaseID(p.kv.Lease))
}

// first returns the key that is first in line in one or the other direction, or nil.
func (q *queue) first(ctx context.Context, order clientv3.SortOrder) (*mvccpb.KeyValue, error) {
	answer, err := q.admin.Get(ctx, q.prefix+"/", clientv3.WithPrefix(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, order))
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	return answer.Kvs[0], nil
}

func (q *queue) end(t *testing.T, order clientv3.SortOrder) *mvccpb.KeyValue {
	t.Helper()
	kv, err := q.first(within(t), order)
	require.NoError(t, err)
	return kv
}
