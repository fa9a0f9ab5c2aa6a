package etcdlock_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// weighted is a Locker for n permits.
type weighted struct {
	*etcdlock.Semaphore

	n int64
}

func (w weighted) Lock(ctx context.Context) (*etcdlock.Hold, error)    { return w.Acquire(ctx, w.n) }
func (w weighted) TryLock(ctx context.Context) (*etcdlock.Hold, error) { return w.TryAcquire(ctx, w.n) }

// pool is the semaphore "pool" in a cluster of its own.
type pool struct {
	cluster *embedtest.Cluster
	client  *clientv3.Client
	*etcdlock.Semaphore

	size int64
}

// newPool is for a test that runs beside others.
func newPool(t *testing.T, size int64, opts ...etcdlock.Option) *pool {
	t.Helper()
	cluster, client := newCluster(t)
	return &pool{cluster, client, etcdlock.NewSemaphore(newSession(t, cluster.Client(t)), "pool", size, opts...), size}
}

// other is the same on a session of its own.
func (p *pool) other(t *testing.T, opts ...etcdlock.Option) (*etcdlock.Semaphore, *session.Session) {
	t.Helper()
	s := newSession(t, p.cluster.Client(t))
	return etcdlock.NewSemaphore(s, "pool", p.size, opts...), s
}

// wait puts a waiter for n permits in line behind others.
func (p *pool) wait(t *testing.T, s *etcdlock.Semaphore, n int64, behind int) <-chan result {
	t.Helper()
	return queued(t, p.client, weighted{s, n}, behind)
}

func acquire(t *testing.T, s *etcdlock.Semaphore, n int64) *etcdlock.Hold {
	t.Helper()
	return lock(t, weighted{s, n})
}

// requireSizeError requires that the lock is refused, with both numbers.
func requireSizeError(t *testing.T, l etcdlock.Locker, want etcdlock.SizeError) {
	t.Helper()
	for _, call := range bothCalls(l) {
		_, err := call(within(t))
		var wrong *etcdlock.SizeError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, want, *wrong)
		require.ErrorContains(t, err, "pool")
	}
}

func TestMorePermitsGoToWaitersAtOnce(t *testing.T) {
	p := newPool(t, 1)
	other, _ := p.other(t)
	h := acquire(t, p.Semaphore, 1)
	first, second := p.wait(t, other, 1, 1), p.wait(t, p.Semaphore, 1, 2)
	third := p.wait(t, other, 1, 3)
	require.NoError(t, other.Resize(within(t), 3))
	holds := []*etcdlock.Hold{h, granted(t, first), granted(t, second)}
	requireWaiting(t, third)
	requireBusy(t, p)
	unlockAll(t, holds...)
	unlock(t, granted(t, third))

	unlock(t, acquire(t, p.Semaphore, 3)) // a holder with the replaced size uses the new one
	stranger := etcdlock.NewSemaphore(newSession(t, p.cluster.Client(t)), "pool", 2)
	requireSizeError(t, stranger, etcdlock.SizeError{Asked: 2, Agreed: 3})
	informed := etcdlock.NewSemaphore(newSession(t, p.cluster.Client(t)), "pool", 3)
	for _, n := range []int64{-1, 0, 4, math.MaxInt64} {
		requireSizeError(t, weighted{informed, n}, etcdlock.SizeError{Asked: n, Agreed: 3, Weight: true})
	}
}

// ExampleSemaphore_Resize follows changes of the size.
func TestSizesTellsThatNobodyHasUsedItAndARefusal(t *testing.T) {
	p := newPool(t, 2)
	for size, err := range p.Sizes(within(t)) {
		require.NoError(t, err)
		require.Zero(t, size)
		break
	}
	defer p.cluster.Refuse("Range", rpctypes.ErrPermissionDenied).Heal()
	for _, refusal := range p.Sizes(within(t)) {
		var typed *etcdlock.Error
		require.ErrorAs(t, refusal, &typed)
		require.Equal(t, "pool", typed.Name)
		require.ErrorIs(t, refusal, rpctypes.ErrPermissionDenied)
		break
	}
}
