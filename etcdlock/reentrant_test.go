package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// reentrant returns the lock "orders" and another one's view of it.
func reentrant(t *testing.T) (r *etcdlock.ReentrantLock, other *etcdlock.Mutex, cluster *embedtest.Cluster) {
	t.Helper()
	cluster = embedtest.Start(t)
	return etcdlock.Reentrant(etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")),
		etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"), cluster
}

func enter(ctx context.Context, t *testing.T, r *etcdlock.ReentrantLock) (context.Context, *etcdlock.Hold) {
	t.Helper()
	inner, h, err := r.Lock(ctx)
	require.NoError(t, err)
	return inner, h
}

// Scenario F2.
func TestEnteringAgainCostsNothingAndKeepsTheToken(t *testing.T) {
	t.Parallel()
	r, other, cluster := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	before := cluster.Calls("Txn") + cluster.Calls("Range")
	ctx, middle := enter(ctx, t, r)
	_, inner, err := r.TryLock(ctx)
	require.NoError(t, err)
	require.Equal(t, before, cluster.Calls("Txn")+cluster.Calls("Range"))
	for _, h := range []*etcdlock.Hold{middle, inner} {
		require.Equal(t, outer.Token(), h.Token())
		require.Equal(t, outer.Key(), h.Key())
		require.NoError(t, h.Err())
	}
	// Every Lock needs its Unlock, in whatever order.
	for _, h := range []*etcdlock.Hold{outer, inner} {
		unlock(t, h)
		require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
		requireBusy(t, other)
		require.NoError(t, middle.Err())
	}
	_, err = middle.Txn(within(t)).Commit()
	require.NoError(t, err)
	unlock(t, middle)
	h := tryLock(t, other)
	unlock(t, h)
}

func TestTheSecondUnlockOfAnInnerHoldDoesNotReleaseTheOuter(t *testing.T) {
	t.Parallel()
	r, other, _ := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	_, inner := enter(ctx, t, r)
	unlock(t, inner)
	require.NoError(t, inner.Unlock(within(t)))
	require.NoError(t, outer.Err())
	requireBusy(t, other)
	unlock(t, outer)
	require.NoError(t, inner.Unlock(within(t)))
	unlock(t, lock(t, other))
}

func TestAContextThatHasLeftItsScopeHasNoRights(t *testing.T) {
	t.Parallel()
	r, other, _ := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	innerCtx, inner := enter(ctx, t, r)
	unlock(t, inner)
	await(t, "the end of the inner scope", innerCtx.Done())
	require.ErrorIs(t, context.Cause(innerCtx), etcdlock.ErrUnlocked)
	require.NoError(t, ctx.Err())
	_, _, err := r.Lock(innerCtx)
	require.ErrorIs(t, err, context.Canceled)

	again, h := enter(context.WithoutCancel(innerCtx), t, r)
	require.NotSame(t, outer, h, "what is around it is still held")
	require.Equal(t, outer.Token(), h.Token())
	require.NoError(t, again.Err())
	unlock(t, h)

	unlock(t, outer)
	await(t, "the end of the scope", ctx.Done())
	fresh, h := enter(context.WithoutCancel(ctx), t, r)
	require.Greater(t, h.Token(), outer.Token(), "a hold of its own")
	requireBusy(t, other)
	_, nested := enter(fresh, t, r)
	require.Equal(t, h.Token(), nested.Token())
	unlockAll(t, nested, h)
	_, _, err = r.TryLock(cancelled())
	require.ErrorIs(t, err, context.Canceled)
}

// A context that has nothing to do with the hold waits in line as anybody does.
func TestReentryNeedsTheContext(t *testing.T) {
	t.Parallel()
	r, _, cluster := reentrant(t)
	_, outer := enter(within(t), t, r)
	_, _, err := r.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	waiting := locking(within(t), outermost{r})
	awaitTickets(t, cluster.Client(t), 2)
	unlock(t, outer)
	h := granted(t, waiting)
	require.Greater(t, h.Token(), outer.Token())
	unlock(t, h)
}

func TestAfterALossTheLockCannotBeEnteredAgain(t *testing.T) {
	t.Parallel()
	r, other, cluster := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	innerCtx, inner := enter(ctx, t, r)
	remove(t, cluster.Client(t), outer.Key())
	next := lock(t, other)
	_, err := inner.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	for _, ctx := range []context.Context{context.WithoutCancel(innerCtx), context.WithoutCancel(ctx)} {
		_, _, err = r.Lock(ctx)
		require.ErrorIs(t, err, etcdlock.ErrLost)
	}
	await(t, "the news to the outer hold", outer.Done())
	require.ErrorIs(t, outer.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, inner.Unlock(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, next.Err())
	unlock(t, next)
	_, again := enter(context.WithoutCancel(ctx), t, r)
	require.NoError(t, again.Err(), "all have released, so there is nothing left to enter")
	unlock(t, again)
}

func TestAllValuesOfANameAreOneReentrantLock(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	one := etcdlock.Reentrant(etcdlock.NewMutex(s, "orders"))
	two := etcdlock.Reentrant(etcdlock.NewRWMutex(s, "orders"))
	stranger := etcdlock.Reentrant(etcdlock.NewMutex(s, "orders", etcdlock.WithNamespace("other")))
	ctx, outer := enter(within(t), t, one)
	ctx, inner := enter(ctx, t, two)
	require.Equal(t, outer.Token(), inner.Token())
	ctx, other := enter(ctx, t, stranger)
	require.NotEqual(t, outer.Token(), other.Token())
	_, innermost := enter(ctx, t, one) // past the stranger
	require.Equal(t, outer.Token(), innermost.Token())
	unlockAll(t, innermost, other, inner, outer)
}

// elsewhere returns pairs of clients that do not see each other's locks.
func elsewhere(t *testing.T) map[string][2]*clientv3.Client {
	t.Helper()
	one, two := embedtest.Start(t), embedtest.Start(t)
	return map[string][2]*clientv3.Client{
		"another cluster":   {one.Client(t), two.Client(t)},
		"another tenant":    {tenantOf(t, one, "a/"), tenantOf(t, one, "b/")},
		"a tenant's parent": {tenantOf(t, one, "tenant/"), one.Client(t)},
	}
}

func TestTheLockOfAnotherEtcdIsNotEntered(t *testing.T) {
	t.Parallel()
	for what, clients := range elsewhere(t) {
		a, b := newSession(t, clients[0]), newSession(t, clients[1])
		here := etcdlock.Reentrant(etcdlock.NewMutex(a, "orders"))
		there := etcdlock.Reentrant(etcdlock.NewMutex(b, "orders"))
		ctx, outer := enter(within(t), t, here)
		ctx, inner := enter(ctx, t, there)
		require.NotEqual(t, outer.Key(), inner.Key(), what)
		requireBusy(t, etcdlock.NewMutex(b, "orders"), what)
		_, again := enter(ctx, t, here) // past the one there
		require.Equal(t, outer.Key(), again.Key(), what)
		unlockAll(t, again, inner, outer)

		plain := lock(t, etcdlock.NewMutex(a, "orders"))
		_, inner, err := there.Lock(plain.Context())
		require.NoError(t, err, what)
		unlockAll(t, inner, plain)
	}
}

// anySource cannot be compared with another.
type anySource func(context.Context) (*session.Session, error)

func (f anySource) Session(ctx context.Context) (*session.Session, error) { return f(ctx) }

// Only the source is compared, which takes no request.
func TestALockOfAnotherSourceIsNotEntered(t *testing.T) {
	_, client := newCluster(t)
	s, keeper := newSession(t, client), keep(t, client)
	for what, c := range map[string]struct {
		source, other session.Source
		same          bool
	}{
		"the same session":   {s, s, true},
		"the same keeper":    {keeper, keeper, true},
		"another session":    {s, newSession(t, client), false},
		"another keeper":     {keeper, keep(t, client), false},
		"not comparable":     {anySource(s.Session), anySource(s.Session), false},
		"a keeper's session": {keeper, s, false},
	} {
		ctx, outer := enter(within(t), t, etcdlock.Reentrant(etcdlock.NewMutex(c.source, "orders")))
		_, inner, err := etcdlock.Reentrant(etcdlock.NewMutex(c.other, "orders")).TryLock(ctx)
		if c.same {
			require.NoError(t, err, what)
			require.Equal(t, outer.Token(), inner.Token(), what)
			unlock(t, inner)
		} else {
			require.ErrorIs(t, err, etcdlock.ErrBusy, what)
		}
		unlock(t, outer)

		reader := lock(t, etcdlock.NewRWMutex(c.source, "orders").RLocker())
		_, err = etcdlock.NewRWMutex(c.other, "orders").TryLock(reader.Context())
		require.Equal(t, c.same, errors.Is(err, etcdlock.ErrUpgrade), what)
		require.Equal(t, !c.same, errors.Is(err, etcdlock.ErrBusy), what)
		unlock(t, reader)
	}
}

// A Keeper is one source, whichever session it has.
func TestALockOfTheKeepersSessionBeforeIsTheSameLock(t *testing.T) {
	_, client := newCluster(t)
	keeper := keep(t, client)
	r := etcdlock.Reentrant(etcdlock.NewMutex(keeper, "orders"))
	ctx, outer := enter(within(t), t, r)
	s, err := keeper.Session(within(t))
	require.NoError(t, err)
	_, err = client.Revoke(within(t), s.Lease())
	require.NoError(t, err)
	require.Error(t, s.Renew(within(t)))
	_, _, err = r.Lock(context.WithoutCancel(ctx))
	require.ErrorIs(t, err, etcdlock.ErrLost, "what is around the call has lost its protection")
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	_, again := enter(context.WithoutCancel(ctx), t, r)
	unlock(t, again)
}

// The stripes of a name are other locks than the one of that name.
func TestAStripeIsNotTheLockOfTheName(t *testing.T) {
	t.Parallel()
	s := newSession(t, embedtest.Start(t).Client(t))
	stripe, _, err := etcdlock.NewStriped(s, "orders", 2).Any(within(t))
	require.NoError(t, err)
	require.NoError(t, etcdlock.RequireHeld(stripe.Context(), "orders"))
	_, h, err := etcdlock.Reentrant(etcdlock.NewMutex(s, "orders")).TryLock(stripe.Context())
	require.NoError(t, err)
	unlockAll(t, h, stripe)
}

func TestTheWriterOfARWMutexCanEnterAgain(t *testing.T) {
	cluster, _ := newCluster(t)
	m := etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "orders")
	r := etcdlock.Reentrant(m)
	ctx, outer := enter(within(t), t, r)
	_, inner := enter(ctx, t, r)
	_, err := m.TryRLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	unlockAll(t, inner, outer)
	s := newSession(t, cluster.Client(t))
	for _, l := range []etcdlock.Locker{m.RLocker(), etcdlock.NewSemaphore(s, "pool", 1), allOf(s, "a"), nil} {
		require.Panics(t, func() { etcdlock.Reentrant(l) })
	}
}

// A Mutex is the writers' side of the name as well.
func TestAReaderIsNotEnteredByAWriter(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	m := etcdlock.NewRWMutex(s, "orders")
	writers := []*etcdlock.ReentrantLock{
		etcdlock.Reentrant(m),
		etcdlock.Reentrant(etcdlock.NewMutex(s, "orders")),
	}
	downgraded := lock(t, etcdlock.NewMutex(s, "orders"))
	require.NoError(t, downgraded.Downgrade(within(t)))
	readers := []*etcdlock.Hold{
		downgraded,
		lock(t, m.RLocker()),
		lock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "other"), m.RLocker())),
	}
	for _, reader := range readers {
		ctx, cancel := context.WithTimeout(reader.Context(), patience)
		for _, w := range writers {
			_, _, err := w.Lock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrUpgrade)
			_, _, err = w.TryLock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrUpgrade)
		}
		cancel()
	}
	unlockAll(t, readers...)
	for _, w := range writers {
		_, h, err := w.TryLock(context.WithoutCancel(readers[0].Context()))
		require.NoError(t, err, "no longer a reader's")
		unlock(t, h)
	}
}

// So ctx, h, err := r.TryLock(ctx) leaves one to go on with.
func TestWithAnErrorTheContextIsTheOneGiven(t *testing.T) {
	t.Parallel()
	r, other, cluster := reentrant(t)
	ctx, h := enter(within(t), t, r)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	mine := etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "mine")
	plain := lock(t, mine)
	for _, c := range []struct {
		lock *etcdlock.ReentrantLock
		ctx  context.Context
		want error
	}{
		{etcdlock.Reentrant(other), within(t), etcdlock.ErrBusy},
		{etcdlock.Reentrant(mine), plain.Context(), etcdlock.ErrNotReentrant},
		{r, ended, context.Canceled},
	} {
		after, none, err := c.lock.TryLock(c.ctx)
		require.ErrorIs(t, err, c.want)
		require.Nil(t, none)
		require.Same(t, c.ctx, after)
	}
	unlockAll(t, h, plain)
}

func TestDoEntersAgain(t *testing.T) {
	t.Parallel()
	r, other, _ := reentrant(t)
	var outer etcdlock.Token
	work := func(ctx context.Context, h *etcdlock.Hold) error {
		require.Equal(t, outer, h.Token())
		require.NoError(t, etcdlock.RequireHeld(ctx, "orders"))
		requireBusy(t, other)
		return errWork
	}
	err := r.Do(within(t), func(ctx context.Context, h *etcdlock.Hold) error {
		outer = h.Token()
		require.ErrorIs(t, r.Do(ctx, work), errWork)
		require.NoError(t, ctx.Err())
		_, inner := enter(ctx, t, r)
		require.Equal(t, outer, inner.Token())
		unlock(t, inner)
		return h.Err()
	})
	require.NoError(t, err)
	unlock(t, lock(t, other))
}

// Goroutines that are given the context share the lock; it is released by the last of them.
func TestGoroutinesEnterAndLeaveAtTheSameTime(t *testing.T) {
	t.Parallel()
	r, other, cluster := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	waiting := locking(within(t), other)
	awaitTickets(t, cluster.Client(t), 2)
	var inside atomic.Int32
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 50 {
				deeper, h, err := r.Lock(ctx)
				if err != nil || h.Token() != outer.Token() {
					t.Errorf("%v", err)
					return
				}
				inside.Add(1)
				_, _ = deeper.Deadline()
				if err := h.Err(); err != nil {
					t.Error(err)
				}
				inside.Add(-1)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	requireWaiting(t, waiting)
	unlock(t, outer)
	unlock(t, granted(t, waiting))
}

// The context of a Lock ends with the hold, while Unlock's request is under way: that must not be sent
// again, and find that the key is gone by itself.
func TestAnUnlockWithTheHoldsContextTellsOfALoss(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	l := etcdlock.Reentrant(etcdlock.NewMutex(newSession(t, client), "orders"))
	for range 20 {
		ctx, h, err := l.Lock(within(t))
		require.NoError(t, err)
		remove(t, client, h.Key())
		require.Error(t, h.Unlock(ctx))
	}
}

func TestAHoldThatWasNotTakenThroughItCannotBeEntered(t *testing.T) {
	t.Parallel()
	m := etcdlock.NewMutex(newSession(t, embedtest.Start(t).Client(t)), "orders")
	r := etcdlock.Reentrant(m)
	err := etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		_, _, err := r.Lock(ctx)
		require.ErrorIs(t, err, etcdlock.ErrNotReentrant)
		_, _, err = r.TryLock(h.Context())
		require.ErrorIs(t, err, etcdlock.ErrNotReentrant)
		return nil
	})
	require.NoError(t, err)
	_, h, err := r.Lock(within(t))
	require.NoError(t, err)
	unlock(t, h)
}
