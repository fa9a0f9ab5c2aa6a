package fairqueue

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

var (
	// ErrBusy is what [Queue.TryJoin] returns if it would have to wait. No ticket is left of the attempt. Do other
	// work, or Join.
	ErrBusy = errors.New("etcdlock: busy")

	// ErrGone says that a ticket is not there any more although its session is alive, as far as can be known. It was
	// removed, or passed over. It wraps [session.ErrLost]. To be in line again, join again.
	ErrGone = keys.ErrGone

	// ErrTooLarge is returned for a candidate's value of more than 1 MiB ([Place], [Ticket.Set]), and by each call
	// that joins a queue with a label of more than 512 bytes ([Options]). The error says how much is allowed. No
	// request was sent. Store a large value elsewhere, and its address in the ticket.
	ErrTooLarge = errors.New("etcdlock: too large")
)

// A request to etcd is at most 1.5 MiB large, unless etcd was started with another --max-request-bytes. What is
// written below these limits fits: one value, or the owners of 127 tickets with the longest names of etcdlock.
const (
	largestValue = 1 << 20
	longestLabel = 512
)

func checkSize(what string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("%w: %s of %d bytes, at most %d are allowed", ErrTooLarge, what, size, limit)
	}
	return nil
}

func checkValue(value string) error { return checkSize("a value", len(value), largestValue) }

func (q *Queue) failed(ctx context.Context, err error) error {
	return failed(ctx, q.source, fmt.Sprintf("queue %s", q.space), err, string(q.space))
}

func (t *Ticket) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	what := "ticket " + t.Key()
	if more := len(t.parts) - 1; more > 0 {
		what = fmt.Sprintf("%s and %d more", what, more)
	}
	var prefixes []string
	for _, p := range t.parts {
		if prefixes = append(prefixes, string(p.queue.space)); p.queue.options.Slots {
			prefixes = append(prefixes, string(p.queue.slotSpace()))
		}
	}
	return failed(ctx, t.Session(), what, err, prefixes...)
}

// failed adds to err what it is about; if a context has ended, what is wrong with the connection; and if etcd denies a
// permission, which one for which keys.
func failed(ctx context.Context, source session.Source, what string, err error, prefixes ...string) error {
	if err == nil {
		return nil
	}
	if has, ok := source.(interface{ Client() *clientv3.Client }); ok {
		if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
			err = request.Denied(ctx, has.Client(), err, prefixes...)
		} else {
			err = request.Explain(has.Client(), err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
