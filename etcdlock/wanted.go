package etcdlock

import (
	"context"
	"errors"

	"github.com/etcdlock/locks/fairqueue"
)

// Wanted waits until another ticket stands in line for the lock, and returns nil then. Otherwise the error is the end
// of the hold, or wraps ctx's, or says that etcd refuses. It is for a holder that gives the lock up when another
// client wants it. It works for the holds of a [Mutex], a [RWMutex] (for writing) and an [Election]; for those of a
// Mutex [WithLocalHandover] or [WithRetention], of a [ReentrantLock] and for shared ones it returns an error at once.
// While it runs it costs a watch on the queue, and a small read about every 10 s.
func (h *Hold) Wanted(ctx context.Context) (err error) {
	h.ready(ctx)
	defer func() { err = failed("wanted", h.lock.name, err) }()
	if err := h.Err(); err != nil {
		return err
	}
	ticket, ok := h.claim.(interface{ Wanted(context.Context) error })
	if !ok || h.Shared() || h.lock.kind == kindPermit || h.lock.kind == kindMulti {
		return errNotExclusive
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(h.Context(), stop)()
	err = ticket.Wanted(ctx)
	if errors.Is(err, fairqueue.ErrGone) {
		err = h.gone(err)
	}
	return h.orEnd(err)
}

var errNotExclusive = errors.New("only the exclusive hold of a single lock, which is not shared in memory, knows of waiters")
