package request

import (
	"context"
	"time"
)

// grace is what a clean-up call gets when the context of its caller is over.
const grace = 250 * time.Millisecond

// Grace returns a context for cleaning up on behalf of a caller: it lasts as
// long as ctx, but for a quarter of a second from now even if ctx is over.
// Cleaning up on the context that was just cancelled would achieve nothing. It has no deadline. Its cause is that of
// ctx.
func Grace(ctx context.Context) (context.Context, context.CancelFunc) {
	NeedContext(ctx)
	until := time.Now().Add(grace)
	graced, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(time.Until(until), func() { end(context.Cause(ctx)) })
	})
	return graced, func() { stop(); end(nil) }
}
