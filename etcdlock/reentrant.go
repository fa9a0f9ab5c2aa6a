package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
)

// ReentrantLock is an exclusive lock that its holder can lock again. The context identifies the holder. Lock returns
// a context of the hold. A Lock with it, or with one derived from it, enters the same hold again, at no cost and with
// the same token. The lock is released when Unlock has been called once for every Lock. A goroutine that gets the
// context shares the hold. It is safe for concurrent use.
type ReentrantLock struct {
	inner Locker
	lock  *lock // of inner
}

// Reentrant returns l, a [Mutex] (or stripe) or a [RWMutex], for writing, as a lock that can be entered
// again. Other kinds panic. All values of one name, namespace and session.Source are the same lock,
// and can be entered through each other's contexts. Sources are compared with ==: a Keeper stays the
// same when its session changes, but two Keepers, or two sessions, of one client are two sources.
func Reentrant(l Locker) *ReentrantLock {
	need(l, "Reentrant needs a lock")
	switch l := l.(type) {
	case *Mutex:
		l.needMade()
		return &ReentrantLock{l, &l.lock}
	case *RWMutex:
		l.needMade()
		return &ReentrantLock{l, &l.lock}
	}
	panic("etcdlock: only a Mutex or a RWMutex can be re-entrant")
}

// Lock enters the hold that ctx comes from, or waits for the lock as [Mutex.Lock] does. The context
// that it returns ends with ctx or with the hold; use it for the work under the lock. With an error it
// is ctx. The hold's Unlock undoes this Lock only.
//
// If ctx comes from a hold that was not taken through a ReentrantLock, the error wraps
// [ErrNotReentrant], or [ErrUpgrade] for a reader's hold. If the hold has been lost, the error wraps
// [ErrLost]. If it has been released, Lock waits as with any other context.
//
// A hold from another [session.Source] counts as a hold of another lock, since it may be in another cluster. If it is
// the same lock, Lock waits for that hold until ctx ends. So take locks that enter each other from one Keeper.
func (r *ReentrantLock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return r.enter(ctx, "lock", Locker.Lock)
}

// TryLock is Lock without waiting: the error wraps [ErrBusy] if the lock is taken and ctx does not
// come from a hold of it.
func (r *ReentrantLock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return r.enter(ctx, "trylock", Locker.TryLock)
}

// Do is the function [Do] with Lock. fn's context enters the lock again.
func (r *ReentrantLock) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error) error {
	return do(ctx, func(ctx context.Context) (*Hold, error) {
		_, h, err := r.Lock(ctx)
		return h, err
	}, fn)
}

func (r *ReentrantLock) enter(ctx context.Context, op string, take func(Locker, context.Context) (*Hold, error)) (context.Context, *Hold, error) {
	need(r.inner, "a ReentrantLock is made with Reentrant")
	needContext(ctx)
	prefix := r.lock.covers[0].prefix
	for h := range holdsAt(ctx, r.lock.source, prefix) {
		e, reentrant := h.claim.(*entry)
		switch {
		case !reentrant && h.Err() == nil && !h.reads(prefix): // a reader's hold is refused below
			return ctx, nil, failed(op, r.lock.name, ErrNotReentrant)
		case !reentrant || errors.Is(h.ended(), ErrUnlocked) || !e.enter():
			continue
		}
		again := e.hold(ctx)
		if err := cmp.Or(ctx.Err(), e.base.Err()); err != nil {
			_ = again.Unlock(ctx) // err is returned
			return ctx, nil, failed(op, r.lock.name, err)
		}
		inner, _ := again.within(ctx)
		return inner, again, nil
	}
	base, err := take(r.inner, ctx)
	if err != nil {
		return ctx, nil, err
	}
	first := entry{nestedClaim{base.claim, base}, new(atomic.Int64)}
	first.open.Store(1)
	h := first.hold(ctx)
	inner, _ := h.within(ctx)
	return inner, h, nil
}

// entry is the claim of the hold that one Lock has returned.
type entry struct {
	nestedClaim
	open *atomic.Int64 // Locks of the base that have not been undone
}

// enter reports whether the base was still held, as far as this process has not released it.
func (e *entry) enter() bool {
	for n := e.open.Load(); n > 0; n = e.open.Load() {
		if e.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (e entry) hold(ctx context.Context) *Hold { return newHold(ctx, e.base.lock, &e) }

// release unlocks the base after the last of them.
func (e *entry) release(ctx context.Context) error {
	if e.open.Add(-1) > 0 {
		return nil
	}
	return e.base.unlock(ctx)
}
