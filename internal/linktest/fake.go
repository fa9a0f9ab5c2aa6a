// Package linktest is for tests of the session and its internal packages: as much of an etcd server as they need, in
// virtual time.
package linktest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/session"
)

// Fate decides what becomes of a request: do makes the server process it, and
// what it returns is what the client hears.
type Fate func(ctx context.Context, do func() error) error

// Answered has the server process the request, and its answer arrive.
func Answered(_ context.Context, do func() error) error { return do() }

// Lost loses the request on its way to the server.
func Lost(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Unheard loses the answer.
func Unheard(ctx context.Context, do func() error) error {
	_ = do()
	<-ctx.Done()
	return ctx.Err()
}

// Late has the answer arrive d later.
func Late(d time.Duration) Fate {
	return func(ctx context.Context, do func() error) error {
		err := do()
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Refused answers err and does nothing.
func Refused(err error) Fate {
	return func(context.Context, func() error) error { return err }
}

// Deaf neither answers nor looks at the context until it is released.
func Deaf(release <-chan struct{}) Fate {
	return func(ctx context.Context, _ func() error) error {
		<-release
		return ctx.Err()
	}
}

// Etcd is as much of an etcd server as a session needs, for tests in virtual time.
type Etcd struct {
	clientv3.Lease // the rest of the interface panics
	etcdserverpb.KVClient

	mu sync.Mutex

	// The fates are those of requests that come from now on. nil: answered.
	OnGrant, OnRenew, OnRevoke, OnTxn Fate
	// decide, if set, goes before txn: a refusal of this very transaction.
	Decide func(*etcdserverpb.TxnRequest) error

	Grants, Renewals, Revocations []time.Time // when they left the client
	InFlight                      int         // renewals
	Alive                         map[clientv3.LeaseID]time.Time
	NextLease                     clientv3.LeaseID
	MinTTL                        int64
	Granted                       int64

	Keys     map[string]*mvccpb.KeyValue
	Revision int64
	Txns     []*etcdserverpb.TxnRequest
	TxnTimes []time.Time
	Limits   []time.Duration // that the transactions' contexts had
}

// New returns an empty server.
func New() *Etcd {
	return &Etcd{
		Alive: map[clientv3.LeaseID]time.Time{},
		Keys:  map[string]*mvccpb.KeyValue{},
	}
}

// Client returns a client of the server.
func (f *Etcd) Client() *clientv3.Client {
	return &clientv3.Client{Lease: f, KV: clientv3.NewKVFromKVClient(f, nil)}
}

// Set changes the fates, or anything else, while the session is at work.
func (f *Etcd) Set(change func(f *Etcd)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// meet makes do happen under f.mu as the fate wants it.
func (f *Etcd) meet(ctx context.Context, fate Fate, do func() error) error {
	if fate == nil {
		fate = Answered
	}
	return fate(ctx, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return do()
	})
}

// Grant implements clientv3.Lease.
func (f *Etcd) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	f.mu.Lock()
	f.Grants = append(f.Grants, time.Now())
	fate := f.OnGrant
	f.mu.Unlock()
	answer := &clientv3.LeaseGrantResponse{}
	err := f.meet(ctx, fate, func() error {
		f.NextLease++
		f.Granted = max(ttl, f.MinTTL)
		answer.ID, answer.TTL = f.NextLease, f.Granted
		f.Alive[f.NextLease] = time.Now().Add(time.Duration(f.Granted) * time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// KeepAliveOnce implements clientv3.Lease.
func (f *Etcd) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	f.mu.Lock()
	f.Renewals = append(f.Renewals, time.Now())
	f.InFlight++
	fate := f.OnRenew
	f.mu.Unlock()
	defer f.Set(func(f *Etcd) { f.InFlight-- })
	answer := &clientv3.LeaseKeepAliveResponse{ID: id}
	err := f.meet(ctx, fate, func() error {
		if !time.Now().Before(f.Alive[id]) {
			return rpctypes.ErrLeaseNotFound
		}
		answer.TTL = f.Granted
		f.Alive[id] = time.Now().Add(time.Duration(f.Granted) * time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Revoke implements clientv3.Lease.
func (f *Etcd) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	f.mu.Lock()
	f.Revocations = append(f.Revocations, time.Now())
	fate := f.OnRevoke
	f.mu.Unlock()
	err := f.meet(ctx, fate, func() error {
		if _, ok := f.Alive[id]; !ok {
			return rpctypes.ErrLeaseNotFound
		}
		delete(f.Alive, id)
		return nil
	})
	return &clientv3.LeaseRevokeResponse{}, err
}

// Txn implements etcdserverpb.KVClient.
func (f *Etcd) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	f.mu.Lock()
	f.Txns = append(f.Txns, r)
	f.TxnTimes = append(f.TxnTimes, time.Now())
	if deadline, ok := ctx.Deadline(); ok {
		f.Limits = append(f.Limits, time.Until(deadline))
	}
	fate, decide := f.OnTxn, f.Decide
	f.mu.Unlock()
	if decide != nil {
		if err := decide(r); err != nil {
			return nil, err
		}
	}
	var answer *etcdserverpb.TxnResponse
	err := f.meet(ctx, fate, func() error {
		answer = f.apply(r)
		f.Revision++
		answer.Header = &etcdserverpb.ResponseHeader{Revision: f.Revision}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Range is noted as a transaction of nothing else.
func (f *Etcd) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	answer, err := f.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: r}},
	}})
	if err != nil {
		return nil, err
	}
	read := answer.Responses[0].GetResponseRange()
	read.Header = answer.Header
	return read, nil
}

// apply understands reads, puts and deletions of one key each, nested transactions, and conditions.
func (f *Etcd) apply(r *etcdserverpb.TxnRequest) *etcdserverpb.TxnResponse {
	answer := &etcdserverpb.TxnResponse{Succeeded: true}
	ops := r.Success
	for _, c := range r.Compare {
		kv := f.Keys[string(c.Key)]
		if kv == nil {
			kv = &mvccpb.KeyValue{}
		}
		if !holds(c, kv) {
			answer.Succeeded, ops = false, r.Failure
		}
	}
	for _, op := range ops {
		result := &etcdserverpb.ResponseOp{}
		switch {
		case op.GetRequestRange() != nil:
			found := &etcdserverpb.RangeResponse{}
			if kv, ok := f.Keys[string(op.GetRequestRange().Key)]; ok {
				if op.GetRequestRange().KeysOnly { // etcd 3.7 answers these from its index
					kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision}
				}
				found.Kvs = append(found.Kvs, kv)
			}
			result.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}
		case op.GetRequestPut() != nil:
			put := op.GetRequestPut()
			kv := &mvccpb.KeyValue{Key: put.Key, CreateRevision: f.Revision + 1, ModRevision: f.Revision + 1, Lease: put.Lease}
			if old := f.Keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			f.Keys[string(put.Key)] = kv
			result.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}
		case op.GetRequestDeleteRange() != nil:
			deleted := &etcdserverpb.DeleteRangeResponse{}
			if _, ok := f.Keys[string(op.GetRequestDeleteRange().Key)]; ok {
				deleted.Deleted = 1
			}
			delete(f.Keys, string(op.GetRequestDeleteRange().Key))
			result.Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleted}
		default:
			result.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: f.apply(op.GetRequestTxn())}
		}
		answer.Responses = append(answer.Responses, result)
	}
	return answer
}

func holds(c *etcdserverpb.Compare, kv *mvccpb.KeyValue) bool {
	switch c.Target {
	case etcdserverpb.Compare_CREATE:
		if c.Result == etcdserverpb.Compare_LESS {
			return kv.CreateRevision < c.GetCreateRevision()
		}
		return kv.CreateRevision == c.GetCreateRevision()
	case etcdserverpb.Compare_MOD:
		return c.GetModRevision() == kv.ModRevision
	case etcdserverpb.Compare_LEASE:
		return c.GetLease() == kv.Lease
	}
	panic("a condition that the fake does not know")
}

// Create puts a key and returns its create revision.
func (f *Etcd) Create(key string, lease clientv3.LeaseID) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Revision++
	f.Keys[key] = &mvccpb.KeyValue{Key: []byte(key), CreateRevision: f.Revision, ModRevision: f.Revision, Lease: int64(lease)}
	return f.Revision
}

// Exists reports whether the key is there.
func (f *Etcd) Exists(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Keys[key] != nil
}

// Expiry is when the server drops the lease if nothing more arrives.
func (f *Etcd) Expiry(id clientv3.LeaseID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Alive[id]
}

// LeaseCount returns how many leases there are.
func (f *Etcd) LeaseCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.Alive)
}

// RenewalTimes returns when renewals arrived.
func (f *Etcd) RenewalTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Renewals)
}

// GrantTimes returns when leases were asked for.
func (f *Etcd) GrantTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Grants)
}

// RevocationTimes returns when revocations arrived.
func (f *Etcd) RevocationTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Revocations)
}

// Requests returns the transactions so far.
func (f *Etcd) Requests() []*etcdserverpb.TxnRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Txns)
}

// InVirtualTime runs test where time.Sleep takes no time, and only passes when
// all goroutines wait: a sleep there is the statement "so much later".
func InVirtualTime(t *testing.T, test func(t *testing.T, f *Etcd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New()) })
}

// Open creates a session that is closed at the end of the test, whatever became
// of the server.
func Open(t *testing.T, f *Etcd, opts ...session.Option) *session.Session {
	t.Helper()
	start := time.Now()
	opts = append([]session.Option{session.WithClock(func() time.Duration { return time.Since(start) })}, opts...)
	s, err := session.New(context.Background(), f.Client(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Set(func(f *Etcd) { f.OnRevoke = nil })
		require.NoError(t, s.Close(context.Background()))
	})
	return s
}

// SecondsSince turns instants into seconds since start, for readable failures.
func SecondsSince(start time.Time, times []time.Time) []float64 {
	var seconds []float64
	for _, at := range times {
		seconds = append(seconds, at.Sub(start).Seconds())
	}
	return seconds
}

// Ended reports whether the session has ended.
func Ended(s *session.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
