package etcdlock

import (
	"context"
	"iter"
	"reflect"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/within"
	"github.com/etcdlock/locks/session"
)

// held is a list of the holds that a context comes from, the latest first.
type held struct {
	hold  *Hold
	outer *held
}

// Live implements [within.Holds].
func (list *held) Live(client *clientv3.Client) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for l := list; l != nil; l = l.outer {
			if l.hold.Err() != nil || l.hold.ticket.Session().Client() != client {
				continue
			}
			for _, g := range l.hold.Guards() {
				if !yield(string(g.KeyBytes()), g.GetCompare().GetCreateRevision()) {
					return
				}
			}
		}
	}
}

// carry returns a context that comes from h as well.
func carry(ctx context.Context, h *Hold) context.Context {
	outer, _ := ctx.Value(within.Key{}).(*held)
	return context.WithValue(ctx, within.Key{}, &held{h, outer})
}

// within returns ctx as it is while h is held, and what ends that earlier.
func (h *Hold) within(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(carry(ctx, h))
	detach := context.AfterFunc(h.Context(), func() { cancel(h.ended()) })
	return ctx, func(cause error) {
		cancel(cause)
		detach()
	}
}

// holdsOf goes through the holds that ctx comes from, ended or not, of which matches accepts a cover.
func holdsOf(ctx context.Context, matches func(*lock, cover) bool) iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		list, _ := ctx.Value(within.Key{}).(*held)
		for ; list != nil; list = list.outer {
			l := list.hold.lock
			if slices.ContainsFunc(l.covers, func(c cover) bool { return matches(l, c) }) && !yield(list.hold) {
				return
			}
		}
	}
}

// holdsAt goes through the holds, ended or not, that ctx comes from and that are of the queue at prefix of
// src's etcd. Another source may be of another cluster or namespace, where the same prefix is another lock.
func holdsAt(ctx context.Context, src session.Source, prefix string) iter.Seq[*Hold] {
	return holdsOf(ctx, func(l *lock, c cover) bool { return c.prefix == prefix && sameSource(l.source, src) })
}

// sameSource does not panic for a source of a user's own type that cannot be compared.
func sameSource(a, b session.Source) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// wouldUpgrade reports whether ctx comes from a reader's hold of what l is to take exclusively: l would wait for it.
func (l *lock) wouldUpgrade(ctx context.Context) bool {
	if ctx.Value(within.Key{}) == nil {
		return false
	}
	for _, c := range l.covers {
		if c.shared {
			continue
		}
		for h := range holdsAt(ctx, l.source, c.prefix) {
			if h.reads(c.prefix) && h.Err() == nil {
				return true
			}
		}
	}
	return false
}

// reads reports whether others may read what is locked at prefix while h is held.
func (h *Hold) reads(prefix string) bool {
	return h.sharing.Load() || slices.ContainsFunc(h.lock.covers, func(c cover) bool { return c.prefix == prefix && c.shared })
}

// RequireHeld returns nil if ctx comes from a hold of the lock called name that has not ended: if it
// is the context that Do gave to its function, that Hold.Context or the Lock of a ReentrantLock
// returned, or one derived from it. Otherwise the error wraps [ErrNotHeld], or is the end of the hold
// ([ErrLost], [ErrUnlocked], [ErrClosed]).
//
// It is an assertion for code that must only be called under a lock, shared or not, and makes no
// request. Writes that must not happen after a loss still need the guard or the token. Only names are
// compared, not namespaces or clusters.
func RequireHeld(ctx context.Context, name string) error {
	needContext(ctx)
	err := ErrNotHeld
	for h := range holdsOf(ctx, func(_ *lock, c cover) bool { return c.name == name }) {
		if err = h.Err(); err == nil {
			return nil
		}
	}
	return failed("require", name, err)
}
