package etcdlock

import (
	"context"
	"iter"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
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

// holdsOf goes through the holds that ctx comes from, ended or not, of which covers accepts a cover. Those
// of one prefix may be of several queues: see isOf.
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

// isOf reports whether h, which covers prefix, is of the queue that src's client sees there. If that client
// took h, it is. Otherwise its key decides, which no other cluster or namespace has, since it names the
// lease: one read.
func (h *Hold) isOf(ctx context.Context, src session.Source, prefix string) (is bool, err error) {
	guards := h.Guards()
	i := slices.IndexFunc(guards, func(g clientv3.Cmp) bool { return strings.HasPrefix(string(g.KeyBytes()), prefix+"/") })
	if i < 0 {
		return false, nil // it only goes by that name, as one of a Striped does
	}
	client, err := clientOf(ctx, src)
	if err != nil || client == h.claim.Session().Client() {
		return err == nil, err
	}
	// Without an operation any member would answer for itself. Other parts of h src's client may not be
	// allowed to read.
	there := clientv3.OpGet(string(guards[i].KeyBytes()), clientv3.WithCountOnly())
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Txn(ctx).If(guards[i]).Then(there).Commit()
		is = err == nil && answer.Succeeded
		return err
	})
	return is, err
}

// clientOf is the client of src's sessions.
func clientOf(ctx context.Context, src session.Source) (*clientv3.Client, error) {
	if has, ok := src.(interface{ Client() *clientv3.Client }); ok {
		return has.Client(), nil
	}
	s, err := src.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.Client(), nil
}

// RequireHeld returns nil if ctx comes from a hold of the lock called name that has not ended:
// if it is the context that Do gave to its function, that Hold.Context or the Lock of a
// ReentrantLock returned, or one derived from it. Otherwise the error wraps [ErrNotHeld], or
// says how the hold ended ([ErrLost], [ErrUnlocked], [ErrClosed]).
//
// It is an assertion for code that must only be called under a lock, whoever took it, shared
// or not. It makes no request. What must not happen after a loss still needs the guard or the
// token. Names are compared as they were given, whatever the namespace, and whichever etcd the lock
// is in: to a program that has locks of one name in several clusters, or for several tenants, it
// says that one of them is held, not which.
func RequireHeld(ctx context.Context, name string) error {
	needContext(ctx)
	err := ErrNotHeld
	for h := range holdsOf(ctx, func(c cover) bool { return c.name == name }) {
		if err = h.Err(); err == nil {
			return nil
		}
	}
	return failed("require", name, err)
}
