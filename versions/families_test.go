package versions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

func TestReadersShareAndAWriterWaitsForAllOfThem(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, ctx := e.client(t), within(t)
		rw := func() *etcdlock.RWMutex { return etcdlock.NewRWMutex(newSession(t, e), name(t)) }
		one, two := lock(t, rw().RLocker()), lock(t, rw().RLocker())
		w := rw()
		writer := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return w.Lock(ctx) })
		r := rw()
		reader := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return r.RLock(ctx) })
		unlock(t, one)
		require.Empty(t, writer)
		unlock(t, two)
		written := taken(t, "the writer", writer)
		require.Empty(t, reader)
		unlock(t, written)
		unlock(t, taken(t, "the reader behind the writer", reader))
	})
}

func TestADowngradeLetsWaitingReadersInAndNoWriter(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, ctx := e.client(t), within(t)
		rw := func() *etcdlock.RWMutex { return etcdlock.NewRWMutex(newSession(t, e), name(t)) }
		written := lock(t, rw())
		r := rw()
		reader := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return r.RLock(ctx) })
		w := rw()
		writer := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return w.Lock(ctx) })
		require.Empty(t, reader)

		require.NoError(t, written.Downgrade(ctx))
		read := taken(t, "the reader", reader)
		require.True(t, written.Shared())
		require.NoError(t, written.Err())
		unlock(t, written)
		require.Empty(t, writer)
		unlock(t, read)
		unlock(t, taken(t, "the writer", writer))
	})
}

func TestPermitsAreGrantedInOrderAndAResizeLetsWaitersIn(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, ctx := e.client(t), within(t)
		semaphore := func() *etcdlock.Semaphore { return etcdlock.NewSemaphore(newSession(t, e), name(t), 3) }
		small, err := semaphore().Acquire(ctx, 1)
		require.NoError(t, err)
		h := semaphore()
		heavy := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return h.Acquire(ctx, 3) })
		l := semaphore()
		light := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return l.Acquire(ctx, 1) })
		require.Empty(t, light, "nobody is overtaken")

		require.NoError(t, semaphore().Resize(ctx, 4))
		three := taken(t, "three permits", heavy)
		require.Empty(t, light)
		require.NoError(t, semaphore().Resize(ctx, 5))
		one := taken(t, "one permit", light)
		_, err = semaphore().TryAcquire(ctx, 1)
		require.ErrorIs(t, err, etcdlock.ErrBusy)
		for _, held := range []*etcdlock.Hold{small, three, one} {
			unlock(t, held)
		}
	})
}

func TestSeveralLocksAreTakenTogetherOrNotAtAll(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin, ctx := e.client(t), within(t)
		s, other := newSession(t, e), newSession(t, e)
		a, b := etcdlock.NewMutex(s, name(t)+"-a"), etcdlock.NewRWMutex(s, name(t)+"-b")
		both := etcdlock.NewMulti(other, a, b)
		held := lock(t, b)
		_, err := both.TryLock(ctx)
		require.ErrorIs(t, err, etcdlock.ErrBusy)
		require.Zero(t, count(t, admin, inNamespace(name(t)+"-a")))

		waiting := inLine(t, admin, inNamespace(name(t)+"-a"), func() (*etcdlock.Hold, error) { return both.Lock(ctx) })
		require.Empty(t, waiting)
		unlock(t, held)
		together := taken(t, "both", waiting)
		for _, part := range []etcdlock.Locker{a, b} {
			_, err := part.TryLock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrBusy)
		}
		require.Greater(t, together.Token(), held.Token())
		unlock(t, together)
		unlock(t, lock(t, a))
	})
}
