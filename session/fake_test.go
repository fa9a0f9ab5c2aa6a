package session_test

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

// fate decides what becomes of a request: do makes the server process it, and
// what fate returns is what the client hears.
type fate func(ctx context.Context, do func() error) error

func answered(_ context.Context, do func() error) error { return do() }

// lost loses the request on its way to the server.
func lost(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// unheard loses the answer.
func unheard(ctx context.Context, do func() error) error {
	_ = do()
	<-ctx.Done()
	return ctx.Err()
}

func late(d time.Duration) fate {
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

func refused(err error) fate {
	return func(context.Context, func() error) error { return err }
}

// deaf neither answers nor looks at the context until it is released.
func deaf(release <-chan struct{}) fate {
	return func(ctx context.Context, _ func() error) error {
		<-release
		return ctx.Err()
	}
}

// fake is as much of an etcd server as a session needs, for tests in virtual time.
type fake struct {
	clientv3.Lease // the rest of the interface panics
	etcdserverpb.KVClient

	mu sync.Mutex

	// The fates are those of requests that come from now on. nil: answered.
	grant, renew, revoke, txn fate
	// decide, if set, goes before txn: a refusal of this very transaction.
	decide func(*etcdserverpb.TxnRequest) error

	grants, renewals, revocations []time.Time // when they left the client
	underWay                      int         // renewals
	leases                        map[clientv3.LeaseID]time.Time
	nextLease                     clientv3.LeaseID
	leastTTL                      int64
	granted                       int64

	keys     map[string]*mvccpb.KeyValue
	revision int64
	txns     []*etcdserverpb.TxnRequest
	txnTimes []time.Time
	limits   []time.Duration // that the transactions' contexts had
}

func newFake() *fake {
	return &fake{
		leases: map[clientv3.LeaseID]time.Time{},
		keys:   map[string]*mvccpb.KeyValue{},
	}
}

func (f *fake) client() *clientv3.Client {
	return &clientv3.Client{Lease: f, KV: clientv3.NewKVFromKVClient(f, nil)}
}

// set changes the fates, or anything else, while the session is at work.
func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// meet makes do happen under f.mu as the fate wants it.
func (f *fake) meet(ctx context.Context, fate fate, do func() error) error {
	if fate == nil {
		fate = answered
	}
	return fate(ctx, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return do()
	})
}

func (f *fake) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	f.mu.Lock()
	f.grants = append(f.grants, time.Now())
	fate := f.grant
	f.mu.Unlock()
	answer := &clientv3.LeaseGrantResponse{}
	err := f.meet(ctx, fate, func() error {
		f.nextLease++
		f.granted = max(ttl, f.leastTTL)
		answer.ID, answer.TTL = f.nextLease, f.granted
		f.leases[f.nextLease] = time.Now().Add(time.Duration(f.granted) * time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (f *fake) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	f.mu.Lock()
	f.renewals = append(f.renewals, time.Now())
	f.underWay++
	fate := f.renew
	f.mu.Unlock()
	defer f.set(func(f *fake) { f.underWay-- })
	answer := &clientv3.LeaseKeepAliveResponse{ID: id}
	err := f.meet(ctx, fate, func() error {
		if !time.Now().Before(f.leases[id]) {
			return rpctypes.ErrLeaseNotFound
		}
		answer.TTL = f.granted
		f.leases[id] = time.Now().Add(time.Duration(f.granted) * time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (f *fake) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	f.mu.Lock()
	f.revocations = append(f.revocations, time.Now())
	fate := f.revoke
	f.mu.Unlock()
	err := f.meet(ctx, fate, func() error {
		if _, ok := f.leases[id]; !ok {
			return rpctypes.ErrLeaseNotFound
		}
		delete(f.leases, id)
		return nil
	})
	return &clientv3.LeaseRevokeResponse{}, err
}

func (f *fake) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	f.mu.Lock()
	f.txns = append(f.txns, r)
	f.txnTimes = append(f.txnTimes, time.Now())
	if deadline, ok := ctx.Deadline(); ok {
		f.limits = append(f.limits, time.Until(deadline))
	}
	fate, decide := f.txn, f.decide
	f.mu.Unlock()
	if decide != nil {
		if err := decide(r); err != nil {
			return nil, err
		}
	}
	var answer *etcdserverpb.TxnResponse
	err := f.meet(ctx, fate, func() error {
		answer = f.apply(r)
		f.revision++
		answer.Header = &etcdserverpb.ResponseHeader{Revision: f.revision}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Range is noted as a transaction of nothing else.
func (f *fake) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
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
func (f *fake) apply(r *etcdserverpb.TxnRequest) *etcdserverpb.TxnResponse {
	answer := &etcdserverpb.TxnResponse{Succeeded: true}
	ops := r.Success
	for _, c := range r.Compare {
		kv := f.keys[string(c.Key)]
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
			if kv, ok := f.keys[string(op.GetRequestRange().Key)]; ok {
				if op.GetRequestRange().KeysOnly { // etcd 3.7 answers these from its index
					kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision}
				}
				found.Kvs = append(found.Kvs, kv)
			}
			result.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}
		case op.GetRequestPut() != nil:
			put := op.GetRequestPut()
			kv := &mvccpb.KeyValue{Key: put.Key, CreateRevision: f.revision + 1, ModRevision: f.revision + 1, Lease: put.Lease}
			if old := f.keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			f.keys[string(put.Key)] = kv
			result.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}
		case op.GetRequestDeleteRange() != nil:
			deleted := &etcdserverpb.DeleteRangeResponse{}
			if _, ok := f.keys[string(op.GetRequestDeleteRange().Key)]; ok {
				deleted.Deleted = 1
			}
			delete(f.keys, string(op.GetRequestDeleteRange().Key))
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

// put creates a key and returns its create revision.
func (f *fake) put(key string, lease clientv3.LeaseID) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.keys[key] = &mvccpb.KeyValue{Key: []byte(key), CreateRevision: f.revision, ModRevision: f.revision, Lease: int64(lease)}
	return f.revision
}

func (f *fake) exists(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key] != nil
}

// expiry is when the server drops the lease if nothing more arrives.
func (f *fake) expiry(id clientv3.LeaseID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leases[id]
}

func (f *fake) leaseCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leases)
}

func (f *fake) renewalTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.renewals)
}

func (f *fake) grantTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.grants)
}

func (f *fake) revocationTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.revocations)
}

// requests returns the transactions so far.
func (f *fake) requests() []*etcdserverpb.TxnRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.txns)
}

// inVirtualTime runs test where time.Sleep takes no time, and only passes when
// all goroutines wait: a sleep there is the statement "so much later".
func inVirtualTime(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake()) })
}

// open creates a session that is closed at the end of the test, whatever became
// of the server.
func open(t *testing.T, f *fake, opts ...session.Option) *session.Session {
	t.Helper()
	opts = append([]session.Option{session.WithMonotonicClock()}, opts...)
	s, err := session.New(context.Background(), f.client(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.set(func(f *fake) { f.revoke = nil })
		require.NoError(t, s.Close(context.Background()))
	})
	return s
}

// secondsSince turns instants into seconds since start, for readable failures.
func secondsSince(start time.Time, times []time.Time) []float64 {
	var seconds []float64
	for _, at := range times {
		seconds = append(seconds, at.Sub(start).Seconds())
	}
	return seconds
}

func ended(s *session.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
