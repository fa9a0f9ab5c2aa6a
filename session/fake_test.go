package session_test

import (
	"context"
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

// deaf neither answers nor looks at the context until it is released.
func deaf(release <-chan struct{}) fate {
	return func(ctx context.Context, _ func() error) error {
		<-release
		return ctx.Err()
	}
}

// fake is as much of an etcd server as the life of a lease needs, for tests in virtual time. Unlike a real one it has
// an answer fall on the instant at which a timer fires.
type fake struct {
	clientv3.Lease // the rest of the interface panics

	mu sync.Mutex

	// The fates are those of requests that come from now on. nil: answered.
	OnGrant, OnRenew, OnRevoke    fate
	Grants, Renewals, Revocations []time.Time // when they left the client
	InFlight                      int         // renewals
	Alive                         map[clientv3.LeaseID]time.Time
	NextLease                     clientv3.LeaseID
	MinTTL                        int64
	Granted                       int64
}

// newFake returns a server without leases.
func newFake() *fake {
	return &fake{Alive: map[clientv3.LeaseID]time.Time{}}
}

// Client returns a client of the server.
func (f *fake) Client() *clientv3.Client {
	return &clientv3.Client{Lease: f}
}

// Set changes the fates, or anything else, while the session is at work.
func (f *fake) Set(change func(f *fake)) {
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

// Grant implements clientv3.Lease.
func (f *fake) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
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
func (f *fake) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	f.mu.Lock()
	f.Renewals = append(f.Renewals, time.Now())
	f.InFlight++
	fate := f.OnRenew
	f.mu.Unlock()
	defer f.Set(func(f *fake) { f.InFlight-- })
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
func (f *fake) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
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

// Expiry is when the server drops the lease if nothing more arrives.
func (f *fake) Expiry(id clientv3.LeaseID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Alive[id]
}

// LeaseCount returns how many leases there are.
func (f *fake) LeaseCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.Alive)
}

// RenewalTimes returns when renewals arrived.
func (f *fake) RenewalTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Renewals)
}

// GrantTimes returns when leases were asked for.
func (f *fake) GrantTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Grants)
}

// RevocationTimes returns when revocations arrived.
func (f *fake) RevocationTimes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Revocations)
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
	start := time.Now()
	opts = append([]session.Option{session.WithClock(func() time.Duration { return time.Since(start) })}, opts...)
	s, err := session.New(context.Background(), f.Client(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Set(func(f *fake) { f.OnRevoke = nil })
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
