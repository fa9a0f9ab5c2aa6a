package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// releaseTimeout is how long Do waits for its release to be confirmed.
const releaseTimeout = 5 * time.Second

// Locker is a lock that can be held once at a time or by several together, whichever
// kind it is: a [Mutex], a stripe among them, a [RWMutex], for writing, a [ReadLock], a [Semaphore],
// for one permit, and a [Multi]. A [Striped] has ways of its own to take any of its stripes, a
// [ReentrantLock] returns a context as well, and an [Election] a term. Implementations are safe for
// concurrent use.
type Locker interface {
	// Lock waits for the lock, in line, until it has it or ctx ends.
	Lock(ctx context.Context) (*Hold, error)
	// TryLock takes the lock only if nobody has it or waits for it; otherwise the
	// error is ErrBusy.
	TryLock(ctx context.Context) (*Hold, error)
}

// Do runs fn while it holds l. fn's context ends with ctx, with the loss of the lock
// or when fn returns, with the reason as its cause. Do waits for fn in any case, even
// if the lock is lost meanwhile, since only then nothing of it is at work any more;
// then it unlocks, on a bounded context of its own, also if fn panics. fn may unlock
// earlier itself, which ends its context.
//
// It returns the error of Lock, or of fn. If the lock was lost before fn returned, the
// error also wraps [ErrLost] (or [ErrClosed]), even if fn itself was content: somebody
// else may have had the lock. What fn did with its context failed with context.Canceled then; see "Errors" in
// the package documentation for what to test first. A release that etcd does not confirm in time is not an
// error; it goes on in the background.
//
// What has to be finished even if ctx ends, as long as the lock is held, takes h.Context instead
// of fn's context.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context, h *Hold) error) error {
	need(l, "Do needs a lock")
	return do(ctx, l.Lock, fn)
}

// TryDo is [Do] if nobody has the lock or waits for it. Otherwise fn is not called, and the error
// wraps [ErrBusy].
func TryDo(ctx context.Context, l Locker, fn func(ctx context.Context, h *Hold) error) error {
	need(l, "TryDo needs a lock")
	return do(ctx, l.TryLock, fn)
}

func do(ctx context.Context, lock func(context.Context) (*Hold, error), fn func(context.Context, *Hold) error) (err error) {
	if fn == nil {
		panic("etcdlock: there is no function to run") // before the lock is taken
	}
	h, err := lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		lost := h.Err()
		_ = h.Unlock(bounded)
		failure := h.failure.Load() // of fn's own, if it came first
		switch {
		case lost != nil && errors.Is(err, lost), failure != nil && errors.Is(err, *failure):
			// fn has told it already
		case errors.Is(lost, ErrLost), errors.Is(lost, ErrClosed):
			err = both(err, failed("do", h.lock.name, lost))
		case failure != nil && errors.Is(*failure, fairqueue.ErrGone):
			// A session that ends while the lock is released is another matter.
			err = both(err, *failure)
		}
	}()
	fnCtx, cancel := context.WithCancelCause(carry(ctx, h))
	defer cancel(nil)
	defer context.AfterFunc(h.Context(), func() { cancel(context.Cause(h.Context())) })()
	return fn(fnCtx, h)
}

// both is errors.Join in one line, as logs want it.
func both(err, other error) error {
	if err == nil {
		return other
	}
	return fmt.Errorf("%w; %w", err, other)
}
