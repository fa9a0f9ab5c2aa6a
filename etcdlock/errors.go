package etcdlock

import (
	"errors"
	"fmt"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

var (
	// ErrBusy is returned by TryLock if the lock is held or waited for. Nothing is left of the attempt.
	ErrBusy = fairqueue.ErrBusy

	// ErrLost says that a hold, or the session under it, was lost: its deadline passed without a
	// renewal, or the key or the lease is gone. It is returned by a Hold's Err, Ensure, Txn and
	// Unlock, and by Lock if its session is lost while it waits. Stop the work, and lock again if it
	// still has to be done. Every call returns it if the client is closed. Then use another client.
	ErrLost = session.ErrLost

	// ErrClosed says that the session was closed by its owner. It is returned by every call that needs
	// the session, and ends its holds.
	ErrClosed = session.ErrClosed

	// ErrUnlocked is the end of a hold that was unlocked: its Err, and the cause of its Context.
	ErrUnlocked = errors.New("etcdlock: unlocked")

	// ErrOutcomeUnknown is returned by the Commit of a Hold's Txn whose answer was lost: it may
	// have taken effect. Read what it was to write, or make it repeatable and commit again.
	ErrOutcomeUnknown = errors.New("etcdlock: outcome unknown")

	// ErrStale is returned by Fence.Admit for a token lower than one before, and by ForceRelease for a token that is
	// not the key's. Refuse the write that the token came with.
	ErrStale = errors.New("etcdlock: stale token")

	// ErrNotHeld is returned by RequireHeld if the context does not come from a hold of that name. It
	// is a mistake in the program.
	ErrNotHeld = errors.New("etcdlock: not held")

	// ErrUpgrade is returned by calls that take a lock exclusively if the context comes from a shared hold
	// of it, and by Hold.Upgrade of a plain reader. The call would wait for its own hold, and two readers for each
	// other. Unlock first, and read again; or take the lock with RWMutex.LockUpgradeable.
	ErrUpgrade = errors.New("etcdlock: a reader cannot become a writer")

	// ErrNotReentrant is returned by ReentrantLock if the context comes from a hold of the same lock
	// that was taken without it. Take both with a ReentrantLock.
	ErrNotReentrant = errors.New("etcdlock: held in a way that cannot be entered again")

	// ErrNoLeader is returned by Election.Leader during a vacancy.
	ErrNoLeader = errors.New("etcdlock: no leader")

	// ErrNotWaiting is returned by Term.Transfer if no candidate with that value waits, or none
	// whose lease is being renewed.
	ErrNotWaiting = fairqueue.ErrNotWaiting

	// ErrForeign is returned by Term.Transfer if a candidate of another program is ahead of the
	// chosen one. Resign, or wait until it is gone.
	ErrForeign = fairqueue.ErrForeign

	// ErrUnhealthy is the end of a term whose holder failed its own health check.
	ErrUnhealthy = errors.New("etcdlock: unhealthy")

	// ErrTooLarge is returned by Campaign, Run and Proclaim for a value of more than 1 MiB, and by the
	// calls that take a lock with a label of more than 512 bytes. Nothing has been sent to etcd.
	ErrTooLarge = fairqueue.ErrTooLarge

	// ErrInvalidName is returned by the first call on a lock whose name is empty, longer than 512
	// bytes, or not UTF-8. Nothing has been sent to etcd.
	ErrInvalidName = errors.New("etcdlock: invalid name")
)

// SizeError says that a semaphore was used with another size than its users have agreed on, with
// slots where others use none, or for more permits than there are. It has both numbers.
type SizeError = fairqueue.SizeError

// TooManyError says that several locks, or the candidates that Term.Transfer has to pass over, are
// more than one transaction of etcd can carry. It has both numbers. Nothing has been done.
type TooManyError = fairqueue.TooManyError

// Error is the error of all calls of this package: which operation failed, on which lock, and why.
// Use errors.Is on it for the sentinels, the context's errors and those of etcd (rpctypes).
type Error struct {
	Op   string // "lock", "trylock", "rlock", "unlock", "txn", "ensure", "do", "campaign", ...
	Name string // as given to the constructor
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, brief(e.Name), e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// failed wraps err unless it is nil.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: err}
}
