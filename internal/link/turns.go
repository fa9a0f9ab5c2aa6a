package link

import (
	"context"

	"github.com/etcdlock/locks/internal/request"
)

// turnLimit is how many requests that cost etcd much a session makes at a time.
const turnLimit = 2

// InTurn runs f, a request that costs etcd much, such as a read of a long queue, when it is its
// turn: a session makes two at a time, in about the order in which they come. When thousands come
// together etcd would otherwise be so busy that leases are not renewed in time. It returns f's
// error, or that with which ctx or the session ended before. Safe for concurrent use.
func (l *Link) InTurn(ctx context.Context, f func() error) error {
	request.NeedContext(ctx)
	select {
	case l.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	defer func() { <-l.turns }()
	return f()
}
