package etcdlock

import (
	"context"
	"iter"
)

type heldKey struct{}

// held is a list of the holds that a context comes from, the latest first.
type held struct {
	hold  *Hold
	outer *held
}

// carry returns a context that comes from h as well.
func carry(ctx context.Context, h *Hold) context.Context {
	outer, _ := ctx.Value(heldKey{}).(*held)
	return context.WithValue(ctx, heldKey{}, &held{h, outer})
}

// holdsOf goes through the holds of the queue at prefix that ctx comes from, ended or not.
func holdsOf(ctx context.Context, covers func(cover) bool) iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		list, _ := ctx.Value(heldKey{}).(*held)
		for ; list != nil; list = list.outer {
			for _, c := range list.hold.lock.covers {
				if covers(c) {
					if !yield(list.hold) {
						return
					}
					break
				}
			}
		}
	}
}

// RequireHeld returns nil if ctx comes from a hold of the lock called name that has not ended:
// if it is the context that Do gave to its function, that Hold.Context or the Lock of a
// ReentrantLock returned, or one derived from it. Otherwise the error wraps [ErrNotHeld], or
// says how the hold ended ([ErrLost], [ErrUnlocked], [ErrClosed]).
//
// It is an assertion for code that must only be called under a lock, whoever took it, shared
// or not. It makes no request. What must not happen after a loss still needs the guard or the
// token. Names are compared as they were given, whatever the namespace.
func RequireHeld(ctx context.Context, name string) error {
	err := ErrNotHeld
	for h := range holdsOf(ctx, func(c cover) bool { return c.name == name }) {
		if err = h.Err(); err == nil {
			return nil
		}
	}
	return failed("require", name, err)
}
