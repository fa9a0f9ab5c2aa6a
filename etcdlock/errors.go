package etcdlock

import (
	"errors"
	"fmt"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

var (
	// ErrBusy is returned by TryLock if the lock is held or waited for. Nothing is left
	// of the attempt. Do something else, or Lock.
	ErrBusy = fairqueue.ErrBusy

	// ErrLost says that a hold, or the session under it, was lost: its deadline
	// passed without news from etcd, or the key or the lease is gone. It is returned
	// by a Hold's Err, Ensure, Txn and Unlock, and by Lock if its session is lost
	// while it waits. Stop the work, and lock again if it still has to be done.
	ErrLost = session.ErrLost

	// ErrClosed says that the session was closed by its owner. It is returned by
	// whatever needs it: locks, and the holds that were bound to it.
	ErrClosed = session.ErrClosed

	// ErrUnlocked is the end of a hold that was unlocked: its Err, and the cause of
	// its Context.
	ErrUnlocked = errors.New("etcdlock: unlocked")

	// ErrOutcomeUnknown is returned by the Commit of a Hold's Txn whose answer was lost: it may
	// have taken effect. Read what it was to write, or make it repeatable and commit again.
	ErrOutcomeUnknown = errors.New("etcdlock: outcome unknown")

	// ErrStale is returned by Fence.Admit for a token of a holder that has been replaced.
	// Refuse what it came with.
	ErrStale = errors.New("etcdlock: stale token")

	// ErrNotHeld is returned by RequireHeld if the context does not come from a hold of
	// that name. It is a mistake in the program.
	ErrNotHeld = errors.New("etcdlock: not held")

	// ErrUpgrade is returned by Lock and TryLock of RWMutex, Multi and ReentrantLock if the context comes from
	// a shared hold of the same lock. It would wait for itself; and if two readers did so, each
	// would wait for the other for ever. Unlock first, and look again at what was read.
	ErrUpgrade = errors.New("etcdlock: a reader cannot become a writer")

	// ErrNotReentrant is returned by ReentrantLock if the context comes from a hold of the same lock
	// that was taken without it. Take both with a ReentrantLock.
	ErrNotReentrant = errors.New("etcdlock: held in a way that cannot be entered again")

	// ErrNoLeader is returned by Election.Leader if there is none.
	ErrNoLeader = errors.New("etcdlock: no leader")

	// ErrNotWaiting is returned by Term.Transfer if no candidate with that value waits, or none
	// whose lease is being renewed.
	ErrNotWaiting = fairqueue.ErrNotWaiting

	// ErrForeign is returned by Term.Transfer if a candidate of another program is ahead
	// of the one to transfer to. Resign, or wait until it is gone.
	ErrForeign = fairqueue.ErrForeign

	// ErrUnhealthy is the end of a term whose holder failed its own health check.
	ErrUnhealthy = errors.New("etcdlock: unhealthy")

	// ErrTooLarge is returned by Campaign, Run and Proclaim for a value of more than 1 MiB, and by the calls
	// that take a lock with a label of more than 512 bytes. Nothing has been sent to etcd. Store what
	// is large elsewhere.
	ErrTooLarge = fairqueue.ErrTooLarge

	// ErrInvalidName is returned by the first call on a lock whose name cannot be one:
	// empty, longer than 512 bytes, or not UTF-8. Nothing has been sent to etcd.
	ErrInvalidName = errors.New("etcdlock: invalid name")
)

// SizeError says that a semaphore was used with another size than the one agreed on, with slots where others
// use it without, or for more permits than there are. It has both numbers.
type SizeError = fairqueue.SizeError

// TooManyError says that several locks, or the candidates that Term.Transfer has to pass over,
// are more than one transaction of etcd can carry. It has both numbers. Nothing has been done.
type TooManyError = fairqueue.TooManyError

// Error is what the calls of this package fail with: which operation on which lock,
// and why. Use errors.Is on it for the sentinels, the context's errors and those of
// etcd (rpctypes).
type Error struct {
	Op   string // "lock", "trylock", "rlock", "unlock", "txn", "ensure", "do", "campaign", ...
	Name string // as given to the constructor
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, brief(e.Name), e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// failed wraps err, if there is one.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: err}
}
