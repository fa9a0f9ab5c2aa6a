package session

import (
	"context"
	"errors"
	"sync"
	"time"
)

// grace is what a clean-up call gets when the context of its caller is over.
const grace = 250 * time.Millisecond

// Grace returns a context for cleaning up on behalf of a caller: it lasts as
// long as ctx, but for a quarter of a second from now even if ctx is over.
// Cleaning up on the context that was just cancelled would achieve nothing.
func Grace(ctx context.Context) (context.Context, context.CancelFunc) {
	needContext(ctx)
	return lastingUntil(ctx, time.Now().Add(grace))
}

// lastingUntil returns a context that lasts as long as ctx, and at least until then.
func lastingUntil(ctx context.Context, least time.Time) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return context.WithCancel(ctx)
	}
	graced, cancel := lasting(ctx, least)
	end := func() {
		left := max(time.Until(least), 0)
		if deadline, limited := graced.Deadline(); limited && time.Until(deadline) <= left && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return // graced has a deadline too, and so the same error
		}
		if left > 0 {
			time.AfterFunc(left, cancel)
		} else {
			cancel()
		}
	}
	if ctx.Err() != nil {
		end()
		return graced, cancel
	}
	stop := context.AfterFunc(ctx, end)
	return graced, func() { stop(); cancel() }
}

// lasting returns a context with ctx's values that does not end with it, but at its deadline, if
// it has one, and not before least.
func lasting(ctx context.Context, least time.Time) (context.Context, context.CancelFunc) {
	values := context.WithoutCancel(ctx)
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(values)
	}
	if deadline.Before(least) {
		deadline = least
	}
	return context.WithDeadline(values, deadline)
}

// graced is a context like that of Grace, made only when it matters: what goes out with others needs
// none of its own as long as its caller's lasts.
type graced struct {
	caller context.Context
	least  time.Time

	mu     sync.Mutex
	made   context.Context // nil until it is needed; from then on it alone tells
	cancel context.CancelFunc
}

func (g *graced) context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.made == nil {
		g.made, g.cancel = lastingUntil(g.caller, g.least)
	}
	return g.made
}

// stop frees what it holds. It is called when nobody uses it any more.
func (g *graced) stop() {
	if g.cancel != nil {
		g.cancel()
	}
}

// Err asks the caller's context only as long as there is no other: at a deadline, which they share,
// one of them is over a little before the other.
func (g *graced) Err() error {
	g.mu.Lock()
	made := g.made
	g.mu.Unlock()
	if made == nil && g.caller.Err() == nil {
		return nil
	}
	return g.context().Err()
}

func (g *graced) Done() <-chan struct{}       { return g.context().Done() }
func (g *graced) Deadline() (time.Time, bool) { return g.context().Deadline() }

// Value asks the one that is made, by which package context knows it. With that of the caller, each
// context derived from it would need a goroutine.
func (g *graced) Value(key any) any { return g.context().Value(key) }

// mayBeOver returns a channel that is closed when the caller's context is over. If ctx is not, then ctx's own
// channel tells.
func mayBeOver(ctx context.Context) <-chan struct{} {
	if g, ok := ctx.(*graced); ok {
		return g.caller.Done()
	}
	return ctx.Done()
}
