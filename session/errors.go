package session

import "github.com/etcdlock/locks/internal/request"

var (
	// ErrLost says that the session, and with it every lock it held, can no
	// longer be trusted: its deadline passed without an answered renewal, its
	// lease is gone, its client was closed, or etcd went back to an earlier
	// revision. It is wrapped with the cause. Stop the work that needed the lock.
	// A new session may be created at once; a [Keeper] does.
	ErrLost = request.ErrLost

	// ErrClosed says that Close was called on the session or the [Keeper].
	ErrClosed = request.ErrClosed
)
