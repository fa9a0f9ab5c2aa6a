package link

import (
	"context"

	"github.com/etcdlock/locks/internal/request"
)

// turnLimit is how many requests that cost etcd much a session makes at a time.
const turnLimit = 2

// InTurn runs f, a request that costs etcd much, such as a read of a long queue, when it is its
// turn: a session makes two at a time, in about the order of the calls. When thousands of waiters
// join together, etcd would otherwise be so busy that leases are not renewed in time. It returns f's
// error, or the one with which ctx or the session ended before.
func (l *Link) InTurn(ctx context.Context, f func() error) error {
	request.NeedContext(ctx)
	select {
	case l.turns <- struct{}{}:
		defer func() { <-l.turns }()
		return f()
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return ctx.Err()
}

// gathering is a question of several callers, and its answer.
type gathering struct {
	callers  int
	asked    bool          // too late for others
	answered chan struct{} // closed when what follows is there
	answer   any
	err      error
}

// Gather runs ask once for all callers with the same key that come before its turn, as with [Link.InTurn]: one
// question of a key at a time. So what ask reads from the quorum is no older than the calls that get it. It runs in a
// goroutine of the session, on a context that ends with the session, and gets the number of callers; some of them may
// have given up. Ask must not wait for another turn. The error is that of ask, or the one with which ctx or the session
// ended before. All answers of a key have the same type.
func Gather[T any](ctx context.Context, l *Link, key string, ask func(ctx context.Context, callers int) (T, error)) (answer T, err error) {
	g := l.gather(key, func(ctx context.Context, callers int) (any, error) { return ask(ctx, callers) })
	select {
	case <-g.answered:
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-l.ctx.Done():
		return answer, context.Cause(l.ctx)
	}
	if g.err != nil {
		return answer, g.err
	}
	return g.answer.(T), nil
}

// gather returns the gathering of all callers that come before its turn. The first caller starts it.
func (l *Link) gather(key string, ask func(context.Context, int) (any, error)) *gathering {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gatherings[key]
	if before := g; g == nil || g.asked {
		g = &gathering{answered: make(chan struct{})}
		l.gatherings[key] = g
		l.Start(func(ctx context.Context) { // or else the session has ended, and the callers see that
			if before != nil {
				<-before.answered
			}
			g.err = l.InTurn(ctx, func() (err error) {
				l.mu.Lock()
				g.asked = true
				callers := g.callers
				l.mu.Unlock()
				g.answer, err = ask(ctx, callers)
				return err
			})
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.gatherings[key] == g {
				delete(l.gatherings, key)
			}
			close(g.answered)
		})
	}
	g.callers++
	return g
}
