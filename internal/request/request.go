// Package request makes single requests to etcd: attempts with time limits of their own, retries, and what
// an error says about a write.
//
// Invariants: an attempt begins only while the caller's context and the life that it depends on last. The error of
// a request says that it is doubtful if any of its attempts may have taken effect, or may yet.
package request

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// FirstAttempt limits an attempt: without an answer in this time the next one goes to another endpoint. It is
	// a compromise: an endpoint that swallows packets costs a caller that long, but
	// a server that is slow, as under a herd, must not be asked for the same thing
	// twice, since that would make it slower. Later attempts get more time for the
	// same reason.
	FirstAttempt = 3 * time.Second
	// LongAttempt limits later attempts.
	LongAttempt = 12 * time.Second

	// FirstPause precedes the second attempt after an answer that may change.
	FirstPause = 10 * time.Millisecond
	// LongPause is the longest pause between attempts.
	LongPause = time.Second

	// grace is what a clean-up call gets when the context of its caller is over.
	grace = 250 * time.Millisecond
)

// Do runs op, a single request, until it is answered, or ctx or life ends: each attempt gets a context that ends
// after a time of its own (3 s at first, up to 12 s), and failures that may pass are tried again after a
// jittered pause. The error wraps ctx's if that ends, and etcd's answer if that will not change. As
// op may be run several times, it must be repeatable.
func Do(ctx, life context.Context, op func(context.Context) error) error {
	return Repeat(ctx, life, func(limit time.Duration) (timedOut bool, err error) { return Attempt(ctx, life, limit, op) })
}

// NeedContext panics if ctx is nil.
func NeedContext(ctx context.Context) {
	if ctx == nil {
		panic("session: nil context")
	}
}

// Repeat runs try until it succeeds, or its error will not change, or ctx or life ends. Each try has a limit of its
// own, and reports whether that has passed.
func Repeat(ctx, life context.Context, try func(limit time.Duration) (timedOut bool, err error)) (err error) {
	limit, pause := FirstAttempt, FirstPause
	doubt := false
	defer func() {
		if doubt && err != nil && !Doubtful(err) {
			err = Unsure(err)
		}
	}()
	for {
		timedOut, err := try(limit)
		if err == nil {
			return nil
		}
		doubt = doubt || Doubtful(err)
		if ctx.Err() != nil || life.Err() != nil {
			return Ended(ctx, err)
		}
		if !timedOut {
			if !Passing(err) {
				return err
			}
			if !Sleep(ctx, life, Jitter(pause)) {
				return Ended(ctx, err)
			}
			pause = min(2*pause, LongPause)
		}
		limit = min(2*limit, LongAttempt)
	}
}

// Attempt runs op once, for at most limit. A timer instead of a deadline, which would
// travel with the request and cost the server a timer as well.
func Attempt(ctx, life context.Context, limit time.Duration, op func(context.Context) error) (timedOut bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	defer time.AfterFunc(limit, cancel).Stop()
	err = op(ctx)
	return ctx.Err() != nil, err
}

// Sleep waits for d and reports whether ctx and life lasted that long.
func Sleep(ctx, life context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-life.Done():
	}
	return false
}

// Jitter spreads d over d/2 to 3d/2, so that callers that failed together do not
// come back together.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// BackOff is the pause after so many failures in a row.
func BackOff(failures int) time.Duration {
	return Jitter(min(FirstPause<<min(failures, 10), LongPause))
}

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
