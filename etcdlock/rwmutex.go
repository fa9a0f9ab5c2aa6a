package etcdlock

import (
	"context"

	"github.com/etcdlock/locks/session"
)

// RWMutex is a lock that either one writer holds or any number of readers. Readers that are next to
// each other in line share it; a reader never overtakes a writer that came first, nor a writer a
// reader. So neither starves. It has no state, and a [Mutex] of the same name is its exclusive side.
// It is safe for concurrent use.
//
// A writer can become a reader ([Hold.Downgrade]). A reader can become a writer ([Hold.Upgrade]) only if it has taken the
// lock with [RWMutex.LockUpgradeable], which one reader at a time can; others get [ErrUpgrade]. Tokens of
// readers do not fence each other. Let only writers write.
type RWMutex struct {
	single
	read ReadLock
}

var _ Locker = (*RWMutex)(nil)

// NewRWMutex returns the read-write lock of name. It is like [NewMutex].
func NewRWMutex(src session.Source, name string, opts ...Option) *RWMutex {
	o := collect("a RWMutex", opts)
	return &RWMutex{newSingle(src, o, kindWrite, name), ReadLock{newSingle(src, o, kindRead, name)}}
}

// Lock waits in line until it has the lock exclusively. It is like [Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) { return m.acquire(ctx, "lock", m.join) }

// TryLock is like [Mutex.TryLock].
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "trylock", m.tryJoin)
}

func (m *RWMutex) part() *single { return &m.single }

// RLock waits in line until it has the lock as a reader. Costs and errors are those of [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) { return m.read.Lock(ctx) }

// TryRLock takes the lock as a reader if no writer holds it or waits for it. Otherwise the error is
// [ErrBusy], after a single read.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) { return m.read.TryLock(ctx) }

// RLocker returns the readers' side as a lock of its own.
func (m *RWMutex) RLocker() *ReadLock { return &m.read }

// ReadLock is the readers' side of a [RWMutex].
type ReadLock struct{ single }

var _ Locker = (*ReadLock)(nil)

// Lock is [RWMutex.RLock].
func (r *ReadLock) Lock(ctx context.Context) (*Hold, error) { return r.acquire(ctx, "rlock", r.join) }

// TryLock is [RWMutex.TryRLock].
func (r *ReadLock) TryLock(ctx context.Context) (*Hold, error) {
	return r.acquire(ctx, "tryrlock", r.tryJoin)
}

func (r *ReadLock) part() *single { return &r.single }

// Shared reports whether it is the hold of a reader, upgradeable or not, or of a writer that has been downgraded.
func (h *Hold) Shared() bool {
	h.bound()
	return h.sharing.Load() || len(h.lock.covers) == 1 && h.lock.covers[0].shared
}

// Downgrade turns a writer's hold into a reader's, without a gap in which another writer could get
// the lock. Readers right behind it in line get the lock as well, up to the next writer. The hold and
// its token stay the same. One round trip, one raft entry. On a reader's hold it does nothing. [Hold.Upgrade] undoes it.
//
// The error wraps [ErrLost] (or [ErrClosed], [ErrUnlocked]) if the hold has ended. If ctx ends before
// etcd answers, the hold may have become shared or not; call it again. Only holds of a single Mutex or
// RWMutex can be downgraded, and not of a Mutex [WithLocalHandover] or [WithRetention], nor of a
// ReentrantLock; others get an error.
func (h *Hold) Downgrade(ctx context.Context) error {
	h.ready(ctx)
	if h.Shared() && h.Err() == nil {
		return nil
	}
	return h.change(ctx, "downgrade", func(c *ticketClaim) error {
		err := c.Share(ctx)
		if err == nil {
			h.sharing.Store(true)
		}
		return err
	})
}
