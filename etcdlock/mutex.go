package etcdlock

import (
	"context"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Mutex is an exclusive lock of a name. It has no state, unless [WithLocalHandover] or
// [WithRetention] gives it some: all Mutex values of one name, in one process or many, are the
// same lock, and each successful Lock is a [Hold] of its own. It is not re-entrant: who locks a name twice waits for itself. It is safe
// for concurrent use.
type Mutex struct {
	lock
	queue *fairqueue.Queue
	line  *line // nil unless something is done without etcd
}

var _ Locker = (*Mutex)(nil)

// NewMutex returns the exclusive lock of name, whose holds are bound to sessions from
// src. No request is made; a name that cannot be one is reported by the first call
// ([ErrInvalidName]). A nil src panics.
func NewMutex(src session.Source, name string, opts ...Option) *Mutex {
	o := collect(aMutex, opts)
	l, prefix := newLock(src, o, name, false)
	queue := fairqueue.New(src, prefix, o.queue...)
	return &Mutex{lock: l, queue: queue, line: newLine(queue, o)}
}

// Lock waits in line until it has the lock or ctx ends: one round trip if the lock is
// free. ctx bounds the wait, not the hold.
//
// The error is an [*Error] that wraps ctx's error if that ended; [ErrLost] if the session, or
// the place in line, was lost meanwhile (with a session.Keeper the next call has a new
// session); [ErrClosed] if the session was closed; [ErrInvalidName]; or etcd's refusal
// (permission denied, no space). With a session.Keeper that has to create a session, and no
// deadline in ctx, it gives up after 10 s. Other trouble that may pass, such as a member that
// is down, a change of leader or too many requests, is not reported but waited out.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "lock", func(ctx context.Context) (claim, error) {
		if m.line != nil {
			return m.line.lock(ctx)
		}
		return claimOf(m.queue.Join(ctx, fairqueue.Exclusive))
	})
}

// TryLock takes the lock only if it is free and nobody waits for it. Otherwise the
// error is [ErrBusy], after a single read, which costs etcd no raft entry. Taking it
// costs one transaction more. Other errors are as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "trylock", func(ctx context.Context) (claim, error) {
		if m.line != nil {
			return m.line.tryLock(ctx)
		}
		return claimOf(m.queue.TryJoin(ctx, fairqueue.Exclusive))
	})
}

func (m *Mutex) place() (fairqueue.Place, *lock) {
	return fairqueue.Place{Queue: m.queue, Mode: fairqueue.Exclusive}, &m.lock
}
