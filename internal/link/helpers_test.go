package link_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// fate decides what becomes of a request on its way: do has etcd answer it, and what the fate returns is what the
// client hears.
type fate func(ctx context.Context, do func() error) error

func answered(_ context.Context, do func() error) error { return do() }

// lost loses the request.
func lost(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// unheard loses the answer.
func unheard(ctx context.Context, do func() error) error {
	_ = do()
	return lost(ctx, nil)
}

// late has the answer arrive d later.
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

// refused answers err and does nothing.
func refused(err error) fate {
	return func(context.Context, func() error) error { return err }
}

// line is the line between a session's client and a real etcd in virtual time. It knows what goes over it.
type line struct {
	etcdserverpb.KVClient // etcd itself

	cluster *embedtest.Cluster
	client  *clientv3.Client // whose transactions and reads go over the line

	mu     sync.Mutex
	fate   fate // nil: answered
	refuse func(*etcdserverpb.TxnRequest) error
	sent   []*etcdserverpb.TxnRequest
}

// inVirtualTime runs test with a session where time.Sleep takes no time, and time only passes when
// all goroutines wait: a sleep there is the statement "so much later".
func inVirtualTime(t *testing.T, test func(t *testing.T, f *line, s *session.Session), opts ...session.Option) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &line{cluster: embedtest.Start(t, embedtest.WithVirtualTime())}
		f.client = f.cluster.Client(t)
		f.KVClient = etcdserverpb.NewKVClient(f.client.ActiveConnection())
		f.client.KV = clientv3.NewKVFromKVClient(f, f.client)
		start := time.Now()
		clock := session.WithClock(func() time.Duration { return time.Since(start) })
		test(t, f, create(t, f.client, append([]session.Option{clock}, opts...)...))
	})
}

// inEach is inVirtualTime for each case.
func inEach[C any](t *testing.T, cases map[string]C, test func(t *testing.T, f *line, s *session.Session, c C), opts ...session.Option) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) { test(t, f, s, c) }, opts...)
		})
	}
}

// named gives cases the names that they are printed with.
func named[C any](cases ...C) map[string]C {
	all := make(map[string]C)
	for _, c := range cases {
		all[fmt.Sprint(c)] = c
	}
	return all
}

// Meet decides what becomes of requests that come from now on.
func (f *line) Meet(next fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fate = next
}

// Refuse has decide look at each request first. An error of it is the answer.
func (f *line) Refuse(decide func(*etcdserverpb.TxnRequest) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = decide
}

// Requests returns the transactions so far. A read counts as one of nothing else.
func (f *line) Requests() []*etcdserverpb.TxnRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

func (f *line) arrive(ctx context.Context, r *etcdserverpb.TxnRequest, do func() error) error {
	f.mu.Lock()
	f.sent = append(f.sent, r)
	meet, refuse := f.fate, f.refuse
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(r); err != nil {
			return err
		}
	}
	if meet == nil {
		return do()
	}
	return meet(ctx, do)
}

func (f *line) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (answer *etcdserverpb.TxnResponse, err error) {
	if asksQuorum(r) { // not a request of the test
		return f.KVClient.Txn(ctx, r)
	}
	err = f.arrive(ctx, r, func() (err error) {
		answer, err = f.KVClient.Txn(context.Background(), r) // whatever becomes of the caller
		return err
	})
	return answer, err
}

// asksQuorum reports whether r is the question that may follow the answer to a renewal.
func asksQuorum(r *etcdserverpb.TxnRequest) bool {
	if len(r.Compare) > 0 || len(r.Success) != 1 {
		return false
	}
	nothing := r.Success[0].GetRequestTxn()
	return nothing != nil && len(nothing.Compare)+len(nothing.Success) == 0
}

func (f *line) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (answer *etcdserverpb.RangeResponse, err error) {
	read := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: r}}
	err = f.arrive(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{read}}, func() (err error) {
		answer, err = f.KVClient.Range(context.Background(), r)
		return err
	})
	return answer, err
}

// Create puts a new key, bound to a lease that is granted if it does not exist, and returns its create revision.
func (f *line) Create(t *testing.T, key string, lease clientv3.LeaseID) int64 {
	t.Helper()
	f.Remove(t, key)
	create := &etcdserverpb.PutRequest{Key: []byte(key), Lease: int64(lease)}
	answer, err := f.Put(t.Context(), create)
	if err != nil {
		require.ErrorContains(t, err, rpctypes.ErrLeaseNotFound.Error())
		_, err = etcdserverpb.NewLeaseClient(f.client.ActiveConnection()).LeaseGrant(t.Context(),
			&etcdserverpb.LeaseGrantRequest{ID: int64(lease), TTL: 1 << 20})
		require.NoError(t, err)
		answer, err = f.Put(t.Context(), create)
		require.NoError(t, err)
	}
	return answer.Header.Revision
}

// Remove deletes a key, if it is there.
func (f *line) Remove(t *testing.T, key string) {
	t.Helper()
	_, err := f.DeleteRange(t.Context(), &etcdserverpb.DeleteRangeRequest{Key: []byte(key)})
	require.NoError(t, err)
}

// Exists reports whether the key is there.
func (f *line) Exists(t *testing.T, key string) bool {
	t.Helper()
	return f.count(t, &etcdserverpb.RangeRequest{Key: []byte(key)}) > 0
}

// Empty reports whether there is no key at all.
func (f *line) Empty(t *testing.T) bool {
	t.Helper()
	return f.count(t, &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}) == 0
}

func (f *line) count(t *testing.T, r *etcdserverpb.RangeRequest) int64 {
	t.Helper()
	answer, err := f.KVClient.Range(t.Context(), r)
	require.NoError(t, err)
	return answer.Count
}

// startEtcd starts an etcd in real time.
func startEtcd(t *testing.T, opts ...embedtest.Option) *embedtest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	return embedtest.Start(t, opts...)
}

// create creates a session that is closed at the end of the test.
func create(tb testing.TB, c *clientv3.Client, opts ...session.Option) *session.Session {
	tb.Helper()
	s, err := session.New(context.Background(), c, opts...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close(context.Background())) })
	return s
}

// put creates a key bound to the lease and returns its create revision.
func put(t *testing.T, c *clientv3.Client, key string, lease clientv3.LeaseID) int64 {
	t.Helper()
	answer, err := c.Put(t.Context(), key, "", clientv3.WithLease(lease))
	require.NoError(t, err)
	return answer.Header.Revision
}

// until polls for what etcd gives no signal for. There is no limit but the test
// binary's: a slow machine is not a failure.
func until(t *testing.T, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		<-ticker.C
	}
}

// warnings counts what is logged as one.
type warnings struct{ n atomic.Int64 }

func (w *warnings) logger() session.Option { return session.WithLogger(slog.New(w)) }

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *warnings) WithGroup(string) slog.Handler { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		w.n.Add(1)
	}
	return nil
}
