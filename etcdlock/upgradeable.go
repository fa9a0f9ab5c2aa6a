package etcdlock

import (
	"context"
	"errors"

	"github.com/etcdlock/locks/fairqueue"
)

// UpgradeableLock is the side of a [RWMutex] for a reader that may become a writer without a gap in which another client
// could write: it reads, decides, and then calls [Hold.Upgrade]. Its hold stands beside those of readers. It excludes
// writers and other upgradeable holds, so two never wait for each other to become writers.
type UpgradeableLock struct{ single }

var _ Locker = (*UpgradeableLock)(nil)

// Upgradeable returns that side as a lock of its own.
func (m *RWMutex) Upgradeable() *UpgradeableLock {
	s := m.single
	s.kind, s.mode = kindUpgradeable, fairqueue.Upgradeable
	return &UpgradeableLock{s}
}

// LockUpgradeable waits in line until it has the lock as a reader that can be upgraded. Costs and errors are those of
// [Mutex.Lock]; [ErrUpgrade] also if ctx comes from an upgradeable hold of the same lock.
func (m *RWMutex) LockUpgradeable(ctx context.Context) (*Hold, error) {
	return m.Upgradeable().Lock(ctx)
}

// TryLockUpgradeable is LockUpgradeable if only readers hold the lock and nothing else waits for it. Otherwise the error is
// [ErrBusy], after a single read.
func (m *RWMutex) TryLockUpgradeable(ctx context.Context) (*Hold, error) {
	return m.Upgradeable().TryLock(ctx)
}

// Lock is [RWMutex.LockUpgradeable].
func (u *UpgradeableLock) Lock(ctx context.Context) (*Hold, error) {
	return u.acquire(ctx, "lockupgradeable", u.join)
}

// TryLock is [RWMutex.TryLockUpgradeable].
func (u *UpgradeableLock) TryLock(ctx context.Context) (*Hold, error) {
	return u.acquire(ctx, "trylockupgradeable", u.tryJoin)
}

// Upgrade turns an upgradeable reader's hold into a writer's: the hold of [RWMutex.LockUpgradeable], or of a writer
// that was downgraded. It waits for the readers that hold the lock, and for those that were in line before the call,
// unless a writer is ahead of them. Later readers wait for it, and so do all writers. No other client writes between
// the beginning of the hold and its end, so what was read before the upgrade is still true. The hold and its token
// stay the same. The token is higher than those of all writers before. It waits while it holds: if a reader that it
// waits for waits for another lock of this process, that is a deadlock.
//
// It takes one round trip and one raft entry if no reader holds the lock or waits for it. Otherwise it takes three
// round trips and two raft entries, and a watch and a read each time that it waits for a reader. On a writer's hold
// it does nothing.
//
// If ctx ends first, the error wraps its error, and the hold is what it was. The session undoes in the background
// what a failed request may have changed. Until it has, later readers may have to wait, and so do further calls of
// Upgrade and Downgrade: while etcd has no space, the first call fails with etcd's error, and later ones with ctx's.
// The error wraps [ErrLost] (or [ErrClosed], [ErrUnlocked]) if the hold has ended. It is [ErrUpgrade] for the hold
// of a reader that is not upgradeable, and if ctx comes from another reader's hold of the same lock, for which the
// call would wait. Other holds that cannot be downgraded get an error, and so does a call while another Upgrade or
// Downgrade of the hold is under way.
func (h *Hold) Upgrade(ctx context.Context) error {
	return h.change(ctx, "upgrade", func(c *ticketClaim) error {
		for other := range holdsAt(ctx, h.lock.source, h.lock.covers[0].prefix) {
			if other != h && other.reads(h.lock.covers[0].prefix) && other.Err() == nil {
				return ErrUpgrade
			}
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(h.Context(), stop)()
		err := c.Upgrade(ctx)
		h.sharing.Store(err != nil) // also if only a Downgrade has failed before
		return err
	})
}

var (
	errNoWriter = errors.New("only the hold of a single Mutex or RWMutex can be upgraded or downgraded")
	errChanging = errors.New("the hold is being upgraded or downgraded by another call")
)

// change upgrades or downgrades a hold whose ticket can be both.
func (h *Hold) change(ctx context.Context, op string, change func(*ticketClaim) error) (err error) {
	h.ready(ctx)
	defer func() { err = failed(op, h.lock.name, err) }()
	if err := h.Err(); err != nil {
		return err
	}
	c, ok := h.claim.(*ticketClaim)
	switch {
	case h.lock.kind == kindRead:
		return ErrUpgrade
	case !ok || h.lock.kind != kindMutex && h.lock.kind != kindWrite && h.lock.kind != kindUpgradeable:
		return errNoWriter
	case !h.changing.CompareAndSwap(false, true):
		return errChanging
	}
	defer h.changing.Store(false)
	err = change(c)
	if errors.Is(err, ErrLost) {
		c.gone(err)
	}
	return h.orEnd(err)
}
