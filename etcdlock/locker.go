package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// jobPatience is how long a Job tries to take its lock.
const jobPatience = 10 * time.Second

// Locker is what the kinds of locks have in common: a [Mutex], a [RWMutex] (for writing), a
// [ReadLock], an [UpgradeableLock], a [Semaphore] (for one permit) and a [Multi]. Implementations are safe for concurrent use.
type Locker interface {
	// Lock waits in line until it has the lock or ctx ends.
	Lock(ctx context.Context) (*Hold, error)
	// TryLock takes the lock only if it need not wait. Otherwise the error is ErrBusy.
	TryLock(ctx context.Context) (*Hold, error)
}

// Do runs fn while it holds l. fn's context ends with ctx, with the loss of the lock or when fn
// returns, with the reason as its cause. Do waits for fn even if the lock is lost meanwhile. Then it
// unlocks, also if fn panics, and waits up to 5 s for that. fn may unlock earlier itself, which ends
// its context. Work that has to be finished even if ctx ends uses h.Context.
//
// Do returns the error of Lock, or of fn. If the lock was lost before fn returned, the error also wraps [ErrLost] (or
// [ErrClosed]), even if fn returned nil: another client may have held the lock meanwhile. fn's own error is often
// context.Canceled then; "Errors" in the package documentation says what to test first. A release that is not
// confirmed in time is no error; it goes on in the background.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context, h *Hold) error) error {
	need(l, "Do needs a lock")
	return do(ctx, l.Lock, fn)
}

// TryDo is [Do] with TryLock: if the lock is taken, fn is not called, and the error wraps [ErrBusy].
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
		h.discard() // if fn has not unlocked it
		if lost := h.loss.Load(); lost != nil && !errors.Is(err, *lost) {
			err = both(err, failed("do", h.lock.name, *lost))
		}
	}()
	fnCtx, end := h.within(ctx)
	defer end(nil)
	return fn(fnCtx, h)
}

// Job returns [TryDo] of l and fn as a plain function, for schedulers such as cron. If the lock is taken it does
// nothing. Other errors are passed to onError, which must not be nil. It gives up after 10 s without an answer. With
// [WithMinHold] it is a job that runs once per tick, although the clocks of several machines differ.
func Job(l Locker, onError func(error), fn func(ctx context.Context, h *Hold) error) func() {
	need(l, "Job needs a lock")
	need(onError, "Job needs a function for errors")
	need(fn, "Job needs a function to run")
	return func() {
		var busy bool // of l, not of a lock that fn takes
		err := do(context.Background(), func(ctx context.Context) (*Hold, error) {
			ctx, cancel := context.WithTimeout(ctx, jobPatience)
			defer cancel()
			h, err := l.TryLock(ctx)
			busy = errors.Is(err, ErrBusy)
			return h, err
		}, fn)
		if err != nil && !busy {
			onError(err)
		}
	}
}

// both is errors.Join in one line, as logs want it.
func both(err, other error) error {
	if err == nil {
		return other
	}
	return fmt.Errorf("%w; %w", err, other)
}
