package session

import (
	"context"
	"errors"
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
