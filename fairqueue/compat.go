package fairqueue

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// What follows is for package etcdlock until it uses what has replaced it.

// Group is a Ticket of several keys.
type Group = Ticket

// Linger is ReleaseAfter.
func (t *Ticket) Linger(ctx context.Context, d time.Duration) error { return t.ReleaseAfter(ctx, d) }

// Guard is the first of Guards.
func (t *Ticket) Guard() clientv3.Cmp { return t.Guards()[0] }

// Entries lists the tickets in order.
func (q *Queue) Entries(ctx context.Context) ([]Entry, error) {
	entries, _, err := q.inspect(ctx)
	return entries, err
}

// Inspect is Entries with the size.
func (q *Queue) Inspect(ctx context.Context) (entries []Entry, size int64, err error) {
	return q.inspect(ctx)
}

// Shares reports whether it can own together with shared tickets.
func (e Entry) Shares() bool { return e.Mode == Shared || e.Mode == Exclusive && isMarked(e.Value) }

// Owning returns how many of the entries own.
func Owning(entries []Entry, size int64) int { return owning(entries, size) }
