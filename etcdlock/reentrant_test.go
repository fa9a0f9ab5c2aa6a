package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// reentrant returns the lock "orders" and another one's view of it.
func reentrant(t *testing.T) (r *etcdlock.ReentrantLock, other *etcdlock.Mutex, cluster *embedtest.Cluster) {
	t.Helper()
	cluster, _ = newCluster(t)
	return etcdlock.Reentrant(newMutex(t, cluster)), newMutex(t, cluster), cluster
}

func enter(ctx context.Context, t *testing.T, r *etcdlock.ReentrantLock) (context.Context, *etcdlock.Hold) {
	t.Helper()
	inner, h, err := r.Lock(ctx)
	require.NoError(t, err)
	return inner, h
}

func TestEnteringAgainCostsNothingAndKeepsTheToken(t *testing.T) {
	r, other, cluster := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	before := requests(cluster)
	ctx, middle := enter(ctx, t, r)
	_, inner, err := r.TryLock(ctx)
	require.NoError(t, err)
	require.Equal(t, before, requests(cluster))
	for _, h := range []*etcdlock.Hold{middle, inner} {
		require.Equal(t, outer.Token(), h.Token())
		require.Equal(t, outer.Key(), h.Key())
		require.NoError(t, h.Err())
	}
	// Every Lock needs its Unlock, in whatever order, and a second one does nothing.
	for _, h := range []*etcdlock.Hold{outer, inner} {
		unlock(t, h)
		require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
		unlock(t, h)
		requireBusy(t, other)
		require.NoError(t, middle.Err())
	}
	_, err = middle.Txn(within(t)).Commit()
	require.NoError(t, err)
	unlock(t, middle)
	unlock(t, inner)
	unlock(t, tryLock(t, other))
}

func TestAContextThatHasLeftItsScopeHasNoRights(t *testing.T) {
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

func TestAfterALossTheLockCannotBeEnteredAgain(t *testing.T) {
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
	for _, h := range []*etcdlock.Hold{inner, outer} {
		require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
		require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	}
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
	m := etcdlock.NewRWMutex(s, "orders")
	two := etcdlock.Reentrant(m) // its writers' side
	stranger := etcdlock.Reentrant(etcdlock.NewMutex(s, "orders", etcdlock.WithNamespace("other")))
	ctx, outer := enter(within(t), t, one)
	ctx, inner := enter(ctx, t, two)
	require.Equal(t, outer.Token(), inner.Token())
	requireBusy(t, m.RLocker())
	ctx, other := enter(ctx, t, stranger)
	require.NotEqual(t, outer.Token(), other.Token())
	_, innermost := enter(ctx, t, one) // past the stranger
	require.Equal(t, outer.Token(), innermost.Token())
	unlockAll(t, innermost, other, inner, outer)
}

// anySource cannot be compared with another.
type anySource func(context.Context) (*session.Session, error)

func (f anySource) Session(ctx context.Context) (*session.Session, error) { return f(ctx) }

// Only the source is compared, which takes no request. So the lock of another cluster is another lock.
func TestALockOfAnotherSourceIsNotEntered(t *testing.T) {
	cluster, client := newCluster(t)
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
		before := requests(cluster)
		_, inner, err := etcdlock.Reentrant(etcdlock.NewMutex(c.other, "orders")).TryLock(ctx)
		if c.same {
			require.NoError(t, err, what)
			require.Equal(t, outer.Token(), inner.Token(), what)
			require.Equal(t, before, requests(cluster), what)
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
	lose(t, client, current(t, keeper))
	_, _, err := r.Lock(context.WithoutCancel(ctx))
	require.ErrorIs(t, err, etcdlock.ErrLost, "what is around the call has lost its protection")
	require.ErrorIs(t, outer.Unlock(within(t)), etcdlock.ErrLost)
	_, again := enter(context.WithoutCancel(ctx), t, r)
	unlock(t, again)
}

// The stripes of a name are other locks than the one of that name, although one of them is held under it.
func TestAStripeIsNotTheLockOfTheName(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	stripe, _, err := etcdlock.NewStriped(s, "orders", 2).Any(within(t))
	require.NoError(t, err)
	require.NoError(t, etcdlock.RequireHeld(stripe.Context(), "orders"))
	_, h, err := etcdlock.Reentrant(etcdlock.NewMutex(s, "orders")).TryLock(stripe.Context())
	require.NoError(t, err)
	unlockAll(t, h, stripe)
}

// So ctx, h, err := r.TryLock(ctx) leaves one to go on with.
func TestWithAnErrorTheContextIsTheOneGiven(t *testing.T) {
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
		{etcdlock.Reentrant(mine), plain.Context(), etcdlock.ErrNotReentrant}, // it was not taken through a ReentrantLock
		{r, ended, context.Canceled},
	} {
		after, none, err := c.lock.TryLock(c.ctx)
		require.ErrorIs(t, err, c.want)
		require.Nil(t, none)
		require.Same(t, c.ctx, after)
	}
	_, _, err := etcdlock.Reentrant(mine).Lock(plain.Context())
	require.ErrorIs(t, err, etcdlock.ErrNotReentrant, "rather than that it waits for itself")
	unlockAll(t, h, plain)
	_, h = enter(within(t), t, etcdlock.Reentrant(mine))
	unlock(t, h)
}

func TestDoEntersAgain(t *testing.T) {
	r, other, _ := reentrant(t)
	require.NoError(t, r.Do(within(t), func(ctx context.Context, outer *etcdlock.Hold) error {
		require.ErrorIs(t, r.Do(ctx, func(ctx context.Context, h *etcdlock.Hold) error {
			require.Equal(t, outer.Token(), h.Token())
			require.NoError(t, etcdlock.RequireHeld(ctx, "orders"))
			requireBusy(t, other)
			return errWork
		}), errWork)
		require.NoError(t, ctx.Err())
		_, inner := enter(ctx, t, r)
		unlock(t, inner)
		return outer.Err()
	}))
	unlock(t, lock(t, other))
}

// Goroutines that are given the context share the lock; it is released by the last of them.
func TestGoroutinesEnterAndLeaveAtTheSameTime(t *testing.T) {
	r, other, cluster := reentrant(t)
	ctx, outer := enter(within(t), t, r)
	waiting := queued(t, cluster.Client(t), other, 1)
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 50 {
				assert.NoError(t, r.Do(ctx, func(_ context.Context, h *etcdlock.Hold) error {
					assert.Equal(t, outer.Token(), h.Token())
					return h.Err()
				}))
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
	r, _, cluster := reentrant(t)
	client := cluster.Client(t)
	for range 20 {
		ctx, h := enter(within(t), t, r)
		remove(t, client, h.Key())
		require.Error(t, h.Unlock(ctx))
	}
}
