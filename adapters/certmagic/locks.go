package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/etcdlock/locks/etcdlock"
)

// unlockTimeout bounds an Unlock, whose context has no end. After it the session goes on releasing in the background.
const unlockTimeout = 10 * time.Second

// locked is a storage with other locks than its own.
type locked struct {
	certmagic.Storage
	locks  *etcdlock.Named
	prefix string // of the names of locks
}

var (
	_ certmagic.Storage          = (*locked)(nil)
	_ certmagic.TryLocker        = (*locked)(nil)
	_ certmagic.LockLeaseRenewer = (*locked)(nil)
)

// Wrap returns base with locks in place of its own. It is for a storage whose locks are weak, or that has none. The
// names of the locks are those that certmagic gives. The storage that is returned is a [certmagic.TryLocker] and a
// [certmagic.LockLeaseRenewer] too. A loss is reported to the function that locks was made with. No request is made.
func Wrap(base certmagic.Storage, locks *etcdlock.Named) certmagic.Storage {
	if base == nil || locks == nil {
		panic("certmagiclock: Wrap needs a storage and locks")
	}
	return &locked{Storage: base, locks: locks}
}

// String names the storage in logs.
func (l *locked) String() string {
	if s, ok := l.Storage.(fmt.Stringer); ok {
		return "etcdlock:" + s.String()
	}
	return fmt.Sprintf("etcdlock:%T", l.Storage)
}

// Lock waits for the lock: one round trip if it is free.
func (l *locked) Lock(ctx context.Context, name string) error {
	return l.locks.Lock(ctx, l.prefix+name)
}

// TryLock reports false if the lock is taken.
func (l *locked) TryLock(ctx context.Context, name string) (bool, error) {
	return l.locks.TryLock(ctx, l.prefix+name)
}

// Unlock returns nil after a loss. It fails if etcd does not answer in time; the release goes on in the background.
func (l *locked) Unlock(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	err := l.locks.Unlock(ctx, l.prefix+name)
	if errors.Is(err, etcdlock.ErrNotHeld) {
		return nil // certmagic unlocks again at exit what failed before
	}
	return err
}

// RenewLockLease makes sure that the lock is held, and that etcd has confirmed it lately: one request, if any. After a
// loss it waits for the lock and takes it again.
func (l *locked) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	h, ok := l.locks.Hold(l.prefix + name)
	if !ok {
		return fmt.Errorf("certmagiclock: renew %q: %w", name, etcdlock.ErrNotHeld)
	}
	// It renews the session, and fails, since d is longer than a session can be trusted for. What counts is whether the
	// lock is held after the renewal: the session goes on renewing it.
	_ = h.Ensure(ctx, d)
	if h.Err() == nil {
		return ctx.Err()
	}
	if err := l.Lock(ctx, name); err != nil {
		return err
	}
	return l.Unlock(ctx, name) // ends the older hold, which is the lost one
}
