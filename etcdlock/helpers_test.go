package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	// patience bounds what must happen at some time, so that a test fails rather than
	// hangs. Nothing is measured by it.
	patience = 30 * time.Second

	// longTTL keeps renewals from bringing news before what is tested can.
	longTTL = 10 * time.Minute

	// waitABit is between looks for what gives no signal.
	waitABit = 2 * time.Millisecond
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newSession(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(within(t), c, append([]session.Option{session.WithTTL(longTTL)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // many a test leaves etcd out of reach
	})
	return s
}

// newCluster returns a cluster for a test that runs beside others, and a client of it.
func newCluster(t *testing.T, opts ...embedtest.Option) (*embedtest.Cluster, *clientv3.Client) {
	t.Helper()
	t.Parallel()
	c := embedtest.Start(t, opts...)
	return c, c.Client(t)
}

// newMutex returns the mutex "orders" on a session of its own.
func newMutex(t *testing.T, c *embedtest.Cluster, opts ...etcdlock.Option) *etcdlock.Mutex {
	t.Helper()
	return etcdlock.NewMutex(newSession(t, c.Client(t)), "orders", opts...)
}

// keep returns a keeper that is closed at the end.
func keep(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Keeper {
	t.Helper()
	k := session.Keep(c, append([]session.Option{session.WithTTL(longTTL)}, opts...)...)
	t.Cleanup(func() { _ = k.Close(cancelled()) }) // many a test leaves etcd out of reach
	return k
}

// current returns the session that a keeper has.
func current(t *testing.T, k *session.Keeper) *session.Session {
	t.Helper()
	s, err := k.Session(within(t))
	require.NoError(t, err)
	return s
}

func lock(t *testing.T, l etcdlock.Locker) *etcdlock.Hold {
	t.Helper()
	h, err := l.Lock(within(t))
	require.NoError(t, err)
	return h
}

func unlock(t *testing.T, h *etcdlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(within(t)))
}

func unlockAll(t *testing.T, holds ...*etcdlock.Hold) {
	t.Helper()
	for _, h := range holds {
		unlock(t, h)
	}
}

func tryLock(t *testing.T, l etcdlock.Locker) *etcdlock.Hold {
	t.Helper()
	h, err := l.TryLock(within(t))
	require.NoError(t, err)
	return h
}

func requireBusy(t *testing.T, l etcdlock.Locker, why ...any) {
	t.Helper()
	h, err := l.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy, why...)
	require.Nil(t, h, why...)
}

// remove deletes a key as a stranger would.
func remove(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	answer, err := c.Delete(within(t), key)
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.Deleted)
}

// revoke ends the lease of a session without its knowledge.
func revoke(t *testing.T, c *clientv3.Client, s *session.Session) {
	t.Helper()
	_, err := c.Revoke(within(t), s.Lease())
	require.NoError(t, err)
}

// lose ends the lease of a session, which notices at once.
func lose(t *testing.T, c *clientv3.Client, s *session.Session) {
	t.Helper()
	revoke(t, c, s)
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// background delivers what f returns.
func background(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// await waits for a channel to be closed or to deliver.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "still waiting for "+what)
		panic("unreachable")
	}
}

// locking locks in the background and delivers what came of it.
func locking(ctx context.Context, l etcdlock.Locker) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx)
		c <- result{h, err}
	}()
	return c
}

type result struct {
	hold *etcdlock.Hold
	err  error
}

// granted waits for the grant of a waiter.
func granted(t *testing.T, waiting <-chan result) *etcdlock.Hold {
	t.Helper()
	r := await(t, "the grant", waiting)
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Err())
	return r.hold
}

func requireWaiting[T any](t *testing.T, waiting ...<-chan T) {
	t.Helper()
	for _, w := range waiting {
		select {
		case r := <-w:
			require.FailNow(t, "does not wait any more", "%+v", r)
		default:
		}
	}
}

// queued locks in the background and returns when n others, and the new waiter, are in the default namespace.
func queued(t *testing.T, c *clientv3.Client, l etcdlock.Locker, n int) <-chan result {
	t.Helper()
	awaitTickets(t, c, n)
	waiting := locking(within(t), l)
	awaitTickets(t, c, n+1)
	return waiting
}

// tickets counts the keys in the default namespace that keysAt lists.
func tickets(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	return len(keysAt(t, c, "etcdlock/"))
}

// awaitTickets waits until there are n keys in the default namespace.
func awaitTickets(t *testing.T, c *clientv3.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return tickets(t, c) == n }, patience, waitABit)
}

// awaitWatch waits until the cluster has been asked for one more watch than before.
func awaitWatch(t *testing.T, c *embedtest.Cluster, before int64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Calls("Watch") > before }, patience, waitABit)
}
