package session

import "errors"

var (
	// ErrLost says that the session, and with it every lock it held, can no
	// longer be trusted: its deadline passed without an answered renewal, its
	// lease is gone, its client was closed, or etcd went back to an earlier
	// revision. It is wrapped with the cause. Stop the work that needed the lock.
	// A new session may be created at once; a [Keeper] does.
	ErrLost = errors.New("etcdlock: lost")

	// ErrClosed says that Close was called on the session or the [Keeper].
	ErrClosed = errors.New("etcdlock: session closed")
)
