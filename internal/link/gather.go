package link

import (
	"context"

	"github.com/etcdlock/locks/internal/request"
)

// gathering is a question that several callers have, and its answer.
type gathering struct {
	callers  int
	asked    bool          // too late for others
	answered chan struct{} // closed when what follows is there
	answer   any
	err      error
}

// Gather answers a question that many goroutines of a session ask at about the same time, with
// one request for all of them. Key says which question it is. Ask is run for the first caller when
// an earlier question of the same key has been answered and it is its turn, as with
// [Link.InTurn]. Its answer is for all who have come until then; who comes later gets a later
// one. So what ask reads, if it asks the quorum, is no older than the calls that get it. It runs in
// a goroutine of the session, on a context that ends with the session, and learns how many callers
// there are, some of whom may have given up. If there is one, it is that whose ask it is.
//
// A question takes one of two turns of the session, so ask should not take long, nor wait for
// another turn or question. Whoever shares the session shares the keys: let them begin with
// something of your own. A prefix of a queue is a key of package fairqueue.
//
// The error is that of ask, or that with which ctx or the session ended before. Safe for concurrent
// use, with the same type of answer for the same key; otherwise Gather panics.
func Gather[T any](ctx context.Context, l *Link, key string, ask func(ctx context.Context, callers int) (T, error)) (answer T, err error) {
	request.NeedContext(ctx)
	g, err := l.gather(key, func(ctx context.Context, callers int) (any, error) { return ask(ctx, callers) })
	if err != nil {
		return answer, err
	}
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
	if g.answer == nil { // of a T that is an interface
		return answer, nil
	}
	return g.answer.(T), nil
}

// gather returns the gathering of all who come now. If there is none, a goroutine sees to it.
func (l *Link) gather(key string, ask func(context.Context, int) (any, error)) (*gathering, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.gatherings[key]
	if before != nil && !before.asked {
		before.callers++
		return before, nil
	}
	g := &gathering{callers: 1, answered: make(chan struct{})}
	started := l.spawn(func(ctx context.Context) {
		defer l.dissolve(key, g)
		if before != nil {
			<-before.answered
		}
		g.err = l.InTurn(ctx, func() (err error) {
			g.answer, err = ask(ctx, l.begin(g))
			return err
		})
	})
	if !started {
		return nil, context.Cause(l.ctx)
	}
	l.gatherings[key] = g
	return g, nil
}

// begin lets nobody else come, and returns how many have.
func (l *Link) begin(g *gathering) (callers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.asked = true
	return g.callers
}

func (l *Link) dissolve(key string, g *gathering) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gatherings[key] == g {
		delete(l.gatherings, key)
	}
	close(g.answered)
}
