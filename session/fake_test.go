package session_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// fate decides what becomes of a request: do makes the server process it, and
// what it returns is what the client hears.
type fate func(ctx context.Context, do func() error) error

// answered has the server process the request, and its answer arrive.
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

// deaf neither answers nor looks at the context for long.
func deaf(ctx context.Context, _ func() error) error {
	time.Sleep(time.Hour)
	return ctx.Err()
}

// requests are those of one kind.
type requests struct {
	mu       sync.Mutex
	fate     fate // nil: answered
	times    []time.Time
	inFlight int
}

// Meet decides what becomes of requests that come from now on.
func (r *requests) Meet(next fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fate = next
}

// Times returns when they left the client.
func (r *requests) Times() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.times)
}

// InFlight returns how many have no answer.
func (r *requests) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight
}

// arrive makes do happen as the fate wants it.
func (r *requests) arrive(ctx context.Context, do func() error) error {
	r.mu.Lock()
	r.times = append(r.times, time.Now())
	r.inFlight++
	meet := r.fate
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight--
	}()
	if meet == nil {
		return do()
	}
	return meet(ctx, do)
}

// fake is as much of an etcd server as the life of a lease needs, for tests in virtual time. Unlike a real one it has
// an answer fall on the instant at which a timer fires.
type fake struct {
	clientv3.Lease // the rest of the interface panics

	Grants, Renewals, Revocations requests

	MinTTL int64

	mu      sync.Mutex
	alive   map[clientv3.LeaseID]time.Time // until when
	last    clientv3.LeaseID
	granted int64
}

func newFake() *fake { return &fake{alive: map[clientv3.LeaseID]time.Time{}} }

// Client returns a client of the server.
func (f *fake) Client() *clientv3.Client { return &clientv3.Client{Lease: f} }

// Grant implements clientv3.Lease.
func (f *fake) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	answer := &clientv3.LeaseGrantResponse{}
	return answer, f.Grants.arrive(ctx, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last++
		f.granted = max(ttl, f.MinTTL)
		answer.ID, answer.TTL = f.last, f.granted
		f.alive[f.last] = time.Now().Add(time.Duration(f.granted) * time.Second)
		return nil
	})
}

// KeepAliveOnce implements clientv3.Lease.
func (f *fake) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	answer := &clientv3.LeaseKeepAliveResponse{ID: id}
	return answer, f.Renewals.arrive(ctx, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !time.Now().Before(f.alive[id]) {
			return rpctypes.ErrLeaseNotFound
		}
		answer.TTL = f.granted
		f.alive[id] = time.Now().Add(time.Duration(f.granted) * time.Second)
		return nil
	})
}

// Revoke implements clientv3.Lease.
func (f *fake) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return &clientv3.LeaseRevokeResponse{}, f.Revocations.arrive(ctx, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, ok := f.alive[id]; !ok {
			return rpctypes.ErrLeaseNotFound
		}
		delete(f.alive, id)
		return nil
	})
}

// Forget drops all leases, as if an operator had revoked them.
func (f *fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.alive)
}

// AnswerNoTTL has renewals answered with a TTL of zero.
func (f *fake) AnswerNoTTL() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted = 0
}

// Expiry is when the server drops the lease if nothing more arrives.
func (f *fake) Expiry(id clientv3.LeaseID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alive[id]
}

// LeaseCount returns how many leases there are.
func (f *fake) LeaseCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.alive)
}

// inVirtualTime runs test where time.Sleep takes no time, and only passes when
// all goroutines wait: a sleep there is the statement "so much later".
func inVirtualTime(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake()) })
}

// inEach runs test for each case in virtual time.
func inEach[C any](t *testing.T, cases map[string]C, test func(t *testing.T, f *fake, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) { test(t, f, c) })
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

// open creates a session that is closed at the end of the test, whatever became
// of the server.
func open(t *testing.T, f *fake, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(context.Background(), f.Client(), append([]session.Option{session.WithMonotonicClock()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Revocations.Meet(answered)
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

// ended reports whether the session has ended.
func ended(s *session.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
