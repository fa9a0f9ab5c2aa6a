package concurrency

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/etcdlock"
)

// These are the variables of etcd's package, and are returned unwrapped.
var (
	// ErrLocked is returned by TryLock if the lock is taken.
	ErrLocked = concurrency.ErrLocked
	// ErrSessionExpired is returned by Lock, TryLock and Unlock if the session has ended, or the lock was lost.
	ErrSessionExpired = concurrency.ErrSessionExpired
	// ErrLockReleased is returned by Unlock if the lock is not held.
	ErrLockReleased = concurrency.ErrLockReleased
)

// noKey is what a Mutex without a key compares: no key has a negative revision.
const noKey = "\x00"

// Mutex is an exclusive lock of a prefix. Two values exclude each other. One value that holds the lock may be locked
// again, which does nothing. It is safe for concurrent use.
type Mutex struct {
	session *Session
	prefix  string

	mu     sync.Mutex
	hold   *etcdlock.Hold // nil: not held
	failed bool           // an Unlock was not confirmed
	key    string
	token  etcdlock.Token
	header *etcdserverpb.ResponseHeader
}

// NewMutex returns the lock of a prefix. No request is made.
func NewMutex(s *Session, pfx string) *Mutex {
	return &Mutex{session: s, prefix: pfx, token: -1}
}

// TryLock is Lock that returns [ErrLocked] if the lock is taken: one round trip, two if it is taken.
func (m *Mutex) TryLock(ctx context.Context) error {
	return m.acquire(ctx, (*etcdlock.Mutex).TryLock)
}

// Lock waits in line until it has the lock or ctx ends: one round trip if the lock is free. If the session ends, the
// error is [ErrSessionExpired].
func (m *Mutex) Lock(ctx context.Context) error {
	return m.acquire(ctx, (*etcdlock.Mutex).Lock)
}

func (m *Mutex) acquire(ctx context.Context, lock func(*etcdlock.Mutex, context.Context) (*etcdlock.Hold, error)) error {
	if m.held() {
		return nil
	}
	var waited bool
	notice := etcdlock.WithHooks(&etcdlock.Hooks{Waiting: func(etcdlock.Waiting) { waited = true }})
	h, err := lock(etcdlock.NewMutex(m.session.session, m.prefix, etcdlock.AtPrefix(), notice), ctx)
	if err != nil {
		return translate(ctx, err)
	}
	header, err := heldAt(ctx, h, waited)
	if err != nil {
		_ = h.Unlock(ctx) // goes on in the background
		return translate(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold, m.failed, m.key, m.token, m.header = h, false, h.Key(), h.Token(), header
	return nil
}

// held reports whether the lock is held by this value.
func (m *Mutex) held() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hold != nil && !m.failed && m.hold.Err() == nil
}

// heldAt returns a revision at which h existed. The token of a lock that was waited for is not enough: it is that of the
// key, and the owner before, of etcd's package, goes by the revision at which it was granted, which is higher.
func heldAt(ctx context.Context, h *etcdlock.Hold, waited bool) (*etcdserverpb.ResponseHeader, error) {
	if !waited {
		return &etcdserverpb.ResponseHeader{Revision: int64(h.Token())}, nil
	}
	answer, err := h.Txn(ctx).Commit()
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.ResponseHeader{Revision: answer.Header.Revision}, nil
}

// Unlock releases the lock: one round trip. If the lock is not held, the error is [ErrLockReleased]; if it was lost,
// [ErrSessionExpired]. If ctx ends before etcd answers, the error is ctx's, the release goes on in the background, and
// Unlock may be called again for a confirmation.
func (m *Mutex) Unlock(ctx context.Context) error {
	m.mu.Lock()
	h, again := m.hold, m.failed
	m.mu.Unlock()
	if h == nil {
		return ErrLockReleased
	}
	err := release(ctx, m.session.Client(), h, again)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != h {
		return translate(ctx, err)
	}
	if m.failed = err != nil && !over(err); !m.failed {
		m.hold, m.key, m.token = nil, noKey, -1
	}
	return translate(ctx, err)
}

// release unlocks h. After an attempt that was not confirmed it does what that may not have done.
func release(ctx context.Context, client *clientv3.Client, h *etcdlock.Hold, again bool) error {
	if !again {
		return h.Unlock(ctx)
	}
	err := etcdlock.ForceRelease(ctx, client, h.Key(), h.Token())
	if errors.Is(err, etcdlock.ErrStale) {
		return nil // it is gone, as it should be
	}
	return err
}

// over reports whether a hold has ended otherwise than by its release.
func over(err error) bool {
	return errors.Is(err, etcdlock.ErrLost) || errors.Is(err, etcdlock.ErrClosed)
}

// IsOwner returns a comparison for a transaction that is to take effect only while the lock is held. It never holds
// while the lock is not.
func (m *Mutex) IsOwner() clientv3.Cmp {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.key
	if key == "" {
		key = noKey
	}
	return clientv3.Compare(clientv3.CreateRevision(key), "=", int64(m.token))
}

// Key returns the key of the lock while it is held.
func (m *Mutex) Key() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

// Header returns a header with a revision at which the lock was held, or nil if it has not been held yet.
func (m *Mutex) Header() *etcdserverpb.ResponseHeader {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.header
}

// locker excludes goroutines first, and then other processes.
type locker struct {
	local sync.Mutex
	mutex *Mutex
}

// NewLocker returns the lock of a prefix as a [sync.Locker]. Lock and Unlock panic with the error if they fail.
func NewLocker(s *Session, pfx string) sync.Locker { return &locker{mutex: NewMutex(s, pfx)} }

func (l *locker) Lock() {
	l.local.Lock()
	if err := l.mutex.Lock(l.mutex.session.Client().Ctx()); err != nil {
		l.local.Unlock()
		panic(err)
	}
}

func (l *locker) Unlock() {
	err := l.mutex.Unlock(l.mutex.session.Client().Ctx())
	if errors.Is(err, ErrLockReleased) {
		panic(err) // local is not locked
	}
	l.local.Unlock()
	if err != nil {
		panic(err)
	}
}

// translate returns the error that etcd's package has for err, unwrapped, because its users compare with ==.
func translate(ctx context.Context, err error) error {
	var answer rpctypes.EtcdError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, etcdlock.ErrBusy):
		return ErrLocked
	case over(err):
		return ErrSessionExpired
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &answer):
		return answer
	}
	return err
}
