package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// Queue is what [Inspect], [InspectAll] and [FollowAll] see of a lock.
type Queue struct {
	Name    string
	Prefix  string  // where it is in etcd, with the slash at its end
	Places  []Place // in line; owners are first, but for readers that own behind an upgradeable one that waits
	Holding int     // how many of them own
	Size    int64   // of a semaphore; 0 if it is none
}

// Place is a holder of a lock or a waiter.
type Place struct {
	Key     string
	Token   Token
	Holding bool
	Kind    string // "exclusive", "shared", "upgradeable", "permit" or "candidate"; others' keys count as exclusive
	// Owner is zero for a candidate of an election, and for keys of other programs; they have a Value.
	Owner    fairqueue.Owner
	Value    string
	Weight   int64 // of permits
	Priority int   // of a candidate

	Lease clientv3.LeaseID
	// TTL is how long the lease lasts without a renewal. If it is far below the session's TTL, the
	// process may be gone. 0 if it could not be read; only Inspect reads it.
	TTL time.Duration
}

const (
	// inspections is how many leases are read at a time.
	inspections = 16

	// ttlTimeout bounds the reads of TTLs. It is enough for a second attempt.
	ttlTimeout = 6 * time.Second
)

// Inspect reads the holders of the lock of that name and its waiters, in order: one read, and one
// request for each lease, for 6 s at most. Give the options that the lock is made with; [WithNamespace]
// and [AtPrefix] matter. It needs no session, and works for every kind of lock; a Multi or Striped is
// several names.
//
// After a [Semaphore.Resize] to less, tickets count as holding if they fit into the new size. Others
// that were granted before still hold their permits, but look like waiters in etcd.
func Inspect(ctx context.Context, client *clientv3.Client, name string, opts ...Option) (Queue, error) {
	needContext(ctx)
	need(client, "Inspect needs a client")
	q, err := inspect(ctx, client, name, opts)
	return q, failed("inspect", name, err)
}

func inspect(ctx context.Context, client *clientv3.Client, name string, opts []Option) (Queue, error) {
	o := collect(anInspection, opts)
	prefix, err := o.prefix(name)
	if err != nil {
		return Queue{}, err
	}
	queue := fairqueue.New(onlooker{client}, prefix, fairqueue.Options{})
	entries, size, err := queue.Entries(ctx)
	if err != nil {
		return Queue{}, err
	}
	q := newQueue(name, prefix, entries, size)
	ttls := leaseTTLs(ctx, client, entries)
	for i := range q.Places {
		q.Places[i].TTL = ttls[q.Places[i].Lease]
	}
	return q, nil
}

// newQueue is what is known without asking about leases.
func newQueue(name, prefix string, entries []fairqueue.Entry, size int64) Queue {
	q := Queue{Name: name, Prefix: prefix + "/", Size: size}
	for _, e := range entries {
		if e.Owns {
			q.Holding++
		}
		q.Places = append(q.Places, Place{
			Key: e.Key, Token: Token(e.Revision), Holding: e.Owns, Kind: e.Mode.String(),
			Owner: e.Owner, Value: string(e.Value), Weight: e.Weight, Priority: e.Priority, Lease: e.Lease,
		})
	}
	return q
}

// leaseTTLs reads the TTLs of all leases. Without an answer in time a TTL is 0.
func leaseTTLs(ctx context.Context, client *clientv3.Client, entries []fairqueue.Entry) map[clientv3.LeaseID]time.Duration {
	ctx, cancel := context.WithTimeout(ctx, ttlTimeout)
	defer cancel()
	ttls := make(map[clientv3.LeaseID]time.Duration)
	for _, e := range entries {
		if e.Lease != clientv3.NoLease {
			ttls[e.Lease] = 0
		}
	}
	var mu sync.Mutex
	var reading sync.WaitGroup
	turn := make(chan struct{}, inspections)
	for _, lease := range slices.Collect(maps.Keys(ttls)) {
		turn <- struct{}{}
		reading.Go(func() {
			defer func() { <-turn }()
			_ = session.Retry(ctx, func(ctx context.Context) error {
				answer, err := client.TimeToLive(ctx, lease)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					ttls[lease] = time.Duration(max(answer.TTL, 0)) * time.Second // it is -1 if the lease is over
				}
				return err
			})
		})
	}
	reading.Wait()
	return ttls
}

// ForceRelease removes a key, found with [Inspect], from its queue: the next in line gets the lock. It is for
// operators, when a holder hangs but its session is renewed. The hold is lost, within milliseconds if it is a second
// old. Writes with its guard or token are refused from then on; others are not. One round trip. If the key has
// another token, nothing is removed, and the error wraps [ErrStale]. If an earlier attempt of the call was not
// answered and the key is gone, it counts as removed by the call.
func ForceRelease(ctx context.Context, client *clientv3.Client, key string, token Token) error {
	needContext(ctx)
	need(client, "ForceRelease needs a client")
	var removed bool // or may have been
	err := session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", int64(token))).
			Then(clientv3.OpDelete(key)).Commit()
		removed = removed || request.Doubtful(err) || err == nil && answer.Succeeded
		return err
	})
	if err == nil && (!removed || token == 0) {
		err = fmt.Errorf("%w: %s is not that of token %d", ErrStale, key, token)
	}
	return failed("force-release", key, request.Explain(client, err))
}

// onlooker is a source that is only read from.
type onlooker struct{ client *clientv3.Client }

func (o onlooker) Client() *clientv3.Client { return o.client }

func (o onlooker) Session(context.Context) (*session.Session, error) {
	return nil, errors.New("an onlooker has no session")
}
