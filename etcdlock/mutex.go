package etcdlock

import (
	"context"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Mutex is an exclusive lock of a name. It has no state: all Mutex values of one name,
// in one process or many, are the same lock, and each successful Lock is a [Hold] of
// its own. It is not re-entrant: who locks a name twice waits for itself. It is safe
// for concurrent use.
type Mutex struct {
	name  string
	queue *fairqueue.Queue
	err   error // of the name
}

var _ Locker = (*Mutex)(nil)

// NewMutex returns the exclusive lock of name, whose holds are bound to sessions from
// src. No request is made; a name that cannot be one is reported by the first call
// ([ErrInvalidName]). A nil src panics.
func NewMutex(src session.Source, name string, opts ...Option) *Mutex {
	o := collect(opts)
	prefix, err := o.prefix(name)
	return &Mutex{name: name, queue: fairqueue.New(src, prefix, o.queue...), err: err}
}

// Name returns the name given to [NewMutex].
func (m *Mutex) Name() string { return m.name }

// Lock waits in line until it has the lock or ctx ends: one round trip if the lock is
// free. ctx bounds the wait, not the hold.
//
// The error is an [*Error] that wraps ctx's error if that ended; [ErrLost] if the
// session, or the place in line, was lost meanwhile (with a session.Keeper the next
// call has a new session); [ErrClosed] if the session was closed; [ErrInvalidName]; or
// etcd's refusal (permission denied, no space). With a session.Keeper that has to create a
// session, and no deadline in ctx, it gives up after 10 s. Other trouble that may pass, such as a member
// that is down, a change of leader or too many requests, is not reported but waited out.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return m.take(ctx, "lock", m.queue.Join)
}

// TryLock takes the lock only if it is free and nobody waits for it. Otherwise the
// error is [ErrBusy], after a single read, which costs etcd no raft entry. Taking it
// costs one transaction more. Other errors are as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.take(ctx, "trylock", m.queue.TryJoin)
}

type joinFunc func(context.Context, fairqueue.Mode, ...fairqueue.JoinOption) (*fairqueue.Ticket, error)

func (m *Mutex) take(ctx context.Context, op string, join joinFunc) (*Hold, error) {
	if m.queue == nil {
		panic("etcdlock: a Mutex is made with NewMutex")
	}
	if ctx == nil {
		panic("etcdlock: nil context")
	}
	if m.err != nil {
		return nil, failed(op, m.name, m.err)
	}
	ticket, err := join(ctx, fairqueue.Exclusive)
	if err != nil {
		return nil, failed(op, m.name, err)
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, failed(op, m.name, err)
	}
	return newHold(ctx, m.name, ticket), nil
}
