package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/etcdlock/locks/session"
)

// Named locks and unlocks by name, for interfaces that know no [Hold]. Each name is that of a [Mutex]. Prefer
// [Do] wherever the code can be changed. It is safe for concurrent use.
type Named struct {
	source  session.Source
	opts    []Option
	onError func(name string, err error)

	mu    sync.Mutex
	holds map[string][]*Hold // the oldest first
}

// NewNamed returns locks that are taken by name. onError is called if a lock is lost before Unlock, which the
// interface cannot report: from a goroutine of its own, or by Unlock if only the release notices the loss. It must
// not be nil. Options are those of [NewMutex], without [WithLocalHandover] and [WithRetention].
func NewNamed(src session.Source, onError func(name string, err error), opts ...Option) *Named {
	need(src, "a Named needs a session source")
	need(onError, "a Named needs a function for errors")
	collect("a Named", opts)
	return &Named{source: src, opts: slices.Clone(opts), onError: onError, holds: map[string][]*Hold{}}
}

// Lock is [Mutex.Lock] of the lock of name.
func (n *Named) Lock(ctx context.Context, name string) error {
	h, err := n.mutex(name).Lock(ctx)
	if err == nil {
		n.add(name, h)
	}
	return err
}

// TryLock is [Mutex.TryLock] of the lock of name. It reports false, without an error, if the lock is taken.
func (n *Named) TryLock(ctx context.Context, name string) (bool, error) {
	h, err := n.mutex(name).TryLock(ctx)
	switch {
	case errors.Is(err, ErrBusy):
		return false, nil
	case err != nil:
		return false, err
	}
	n.add(name, h)
	return true, nil
}

// Unlock releases the lock of name: one round trip. After a loss it returns nil, and onError is called with the loss.
// If etcd does not answer before ctx ends, it returns an error, and the session goes on releasing in the background.
// Without a hold the error wraps [ErrNotHeld].
//
// After a loss another client may have the lock. If the name is locked again here before its Unlock, there are two
// holds, and each Unlock ends the older one. So the lock stays taken until Unlock has been called once for every
// Lock.
func (n *Named) Unlock(ctx context.Context, name string) error {
	needContext(ctx)
	n.mu.Lock()
	holds := n.holds[name]
	if len(holds) > 1 {
		n.holds[name] = holds[1:]
	} else {
		delete(n.holds, name)
	}
	n.mu.Unlock()
	if len(holds) == 0 {
		return failed("unlock", name, ErrNotHeld)
	}
	h := holds[0]
	err := h.Unlock(ctx)
	if h.loss.Load() == nil {
		return err
	}
	if errors.Is(h.ended(), ErrUnlocked) {
		n.onError(name, err) // the release has noticed it
	}
	return nil
}

// Hold returns the latest hold of name that has not been unlocked, for its token and its guard. It may be lost.
func (n *Named) Hold(name string) (*Hold, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	holds := n.holds[name]
	if len(holds) == 0 {
		return nil, false
	}
	return holds[len(holds)-1], true
}

// Context returns a context for the work under the lock of name: it ends with ctx, with the latest hold, with the
// reason as its cause, or when the function that is returned is called. Without a hold it has ended, with
// [ErrNotHeld] as its cause.
func (n *Named) Context(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	needContext(ctx)
	if h, ok := n.Hold(name); ok {
		ctx, end := h.within(ctx)
		return ctx, func() { end(nil) }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(failed("context", name, ErrNotHeld))
	return ctx, func() {}
}

func (n *Named) mutex(name string) *Mutex {
	if n == nil || n.holds == nil {
		panic("etcdlock: a Named is made with NewNamed")
	}
	return NewMutex(n.source, name, n.opts...)
}

func (n *Named) add(name string, h *Hold) {
	n.mu.Lock()
	n.holds[name] = append(n.holds[name], h)
	n.mu.Unlock()
	h.onLoss(func(err error) { n.onError(name, failed("hold", name, err)) })
}
