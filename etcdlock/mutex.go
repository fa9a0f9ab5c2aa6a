package etcdlock

import (
	"context"

	"github.com/etcdlock/locks/session"
)

// Mutex is the exclusive lock of a name. All Mutex values of one name, in one process or many, are
// the same lock, and each successful Lock returns a [Hold] of its own. A Mutex has no state, except
// [WithLocalHandover] and [WithRetention]. It is not re-entrant: a second Lock waits for the first
// hold to end. It is safe for concurrent use.
type Mutex struct {
	single
	line *line // for WithLocalHandover and WithRetention; nil: neither
}

var _ Locker = (*Mutex)(nil)

// NewMutex returns the exclusive lock of name, whose holds are bound to sessions from
// src. No request is made; a name that cannot be one is reported by the first call
// ([ErrInvalidName]). A nil src panics.
func NewMutex(src session.Source, name string, opts ...Option) *Mutex {
	m := &Mutex{single: newSingle(src, collect(aMutex, opts), kindMutex, name)}
	m.line = newLine(&m.single)
	return m
}

// Lock waits in line until it has the lock or ctx ends: one round trip if the lock is free. ctx
// bounds the wait, not the hold.
//
// The error is an [*Error] that wraps ctx's error if that ended; [ErrLost] if the session or the
// ticket was lost meanwhile (with a session.Keeper the next call has a new session); [ErrClosed] if
// the session was closed; [ErrUpgrade], at once, if ctx comes from a reader's hold of the same lock;
// [ErrInvalidName]; or etcd's refusal (permission denied, no space). Where a session.Keeper has to create a
// session and ctx has no deadline, Lock gives up after 10 s. Temporary failures, such as a member that is
// down, a change of leader or too many requests, are retried.
//
// The same lock is one of the same name, namespace and session.Source. A reader's hold from another source,
// such as a second Keeper of the same client, is not recognized: Lock waits for it.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	if m.line != nil {
		return m.acquireClaim(ctx, "lock", m.line.lock)
	}
	return m.acquire(ctx, "lock", m.join)
}

// TryLock takes the lock only if it is neither held nor waited for. Otherwise the error is
// [ErrBusy], after a single read, which costs etcd no raft entry. Taking it costs one transaction
// more. Other errors are as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	if m.line != nil {
		return m.acquireClaim(ctx, "trylock", m.line.tryLock)
	}
	return m.acquire(ctx, "trylock", m.tryJoin)
}

func (m *Mutex) part() *single { return &m.single }
