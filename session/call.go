package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// An attempt that gets no answer in this time goes to another endpoint. It is
	// a compromise: an endpoint that swallows packets costs a caller that long, but
	// a server that is slow, as under a herd, must not be asked for the same thing
	// twice, since that would make it slower. Later attempts get more time for the
	// same reason.
	firstAttempt = 3 * time.Second
	longAttempt  = 12 * time.Second

	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// Call runs op, a single request to etcd, until it is answered: each attempt
// gets a context with a deadline of its own (3 s at first, up to 12 s), and
// failures that may pass (no answer, no leader, member down, too many requests)
// are tried again after a jittered pause. It returns early with an error that
// wraps ctx's when that ends, with the session's when that ends, and with
// etcd's own answer when that will not change (permission denied, no space).
// An answer that the lease is unknown ends the session; so what is bound to another lease is not for
// Call.
//
// As op may be run several times, it must be repeatable; see [Doubtful] for
// what its error says about writes. Safe for concurrent use.
func (s *Session) Call(ctx context.Context, op func(context.Context) error) error {
	needContext(ctx)
	if op == nil {
		panic("session: Call needs a function")
	}
	return s.call(ctx, func(limit time.Duration) (timedOut bool, err error) { return attempt(ctx, s.ctx, limit, op) })
}

func (s *Session) call(ctx context.Context, try func(limit time.Duration) (timedOut bool, err error)) error {
	if err := s.Err(); err != nil {
		return unsent{err}
	}
	err := repeat(ctx, s.ctx, func(limit time.Duration) (timedOut bool, err error) {
		// Judged here, since the error of the call may tell why ctx ended, which may be the loss of
		// another session.
		if timedOut, err = try(limit); IsAnswer(err, rpctypes.ErrLeaseNotFound) {
			s.lose(err)
		}
		return timedOut, err
	})
	if ended := s.Err(); err != nil && ended != nil {
		switch {
		case InFlight(err):
			return inFlight{ended} // Late may have been told before the end
		case Doubtful(err):
			return unsure{ended}
		case errors.As(err, new(unsent)):
			return unsent{ended}
		}
		return ended
	}
	return Explain(s.client, err)
}

// Retry is [Session.Call] for requests that need no session: it ends with ctx only.
func Retry(ctx context.Context, op func(context.Context) error) error {
	needContext(ctx)
	if op == nil {
		panic("session: Retry needs a function")
	}
	return attempts(ctx, context.Background(), op)
}

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("session: nil context")
	}
}

// Doubtful reports whether a write that failed with err may nevertheless have
// been applied, or may yet be: the answer was lost, or the request is held up
// somewhere between here and the server; or etcd says that it has no space, which
// may be since that write.
func Doubtful(err error) bool {
	if err == nil {
		return false
	}
	if errors.As(err, new(unsure)) || InFlight(err) {
		return true
	}
	if errors.As(err, new(unsent)) {
		return false
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return false
	case codes.ResourceExhausted:
		// Etcd says that there is no space of what it has applied as well, if the last of it went between
		// the check at the door and that; and gRPC complains of an answer that is too large.
		return !IsAnswer(err, rpctypes.ErrTooManyRequests)
	}
	return true
}

// refused reports whether there has been an answer which will not change, so that nothing is under way any
// more. That does not say whether anything was applied.
func refused(err error) bool {
	return err != nil && !Passing(err) && (!Doubtful(err) || codeOf(err) == codes.ResourceExhausted)
}

// attempts is Call without a session: until ctx or life ends.
func attempts(ctx, life context.Context, op func(context.Context) error) error {
	return repeat(ctx, life, func(limit time.Duration) (timedOut bool, err error) { return attempt(ctx, life, limit, op) })
}

// repeat tries until there is an answer, or ctx or life ends. Each try has a limit of its own.
func repeat(ctx, life context.Context, try func(limit time.Duration) (timedOut bool, err error)) (err error) {
	limit, pause := firstAttempt, firstPause
	doubt := false
	defer func() {
		if doubt && err != nil && !Doubtful(err) {
			err = unsure{err}
		}
	}()
	for {
		timedOut, err := try(limit)
		if err == nil {
			return nil
		}
		doubt = doubt || Doubtful(err)
		if ctx.Err() != nil || life.Err() != nil {
			return ended(ctx, err)
		}
		if !timedOut {
			if !Passing(err) {
				return err
			}
			if !sleep(ctx, life, jitter(pause)) {
				return ended(ctx, err)
			}
			pause = min(2*pause, longPause)
		}
		limit = min(2*limit, longAttempt)
	}
}

// attempt runs op once, for at most limit. A timer instead of a deadline, which would
// travel with the request and cost the server a timer as well.
func attempt(ctx, life context.Context, limit time.Duration, op func(context.Context) error) (timedOut bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	defer time.AfterFunc(limit, cancel).Stop()
	err = op(ctx)
	return ctx.Err() != nil, err
}

// Passing reports whether a request that failed with err may well succeed a moment later,
// as with a member that is down; not so if it was refused (permission denied, no space).
func Passing(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Internal:
		return true
	case codes.ResourceExhausted:
		return IsAnswer(err, rpctypes.ErrTooManyRequests)
	case codes.InvalidArgument:
		// Somebody changed users or roles at the same time.
		return IsAnswer(err, rpctypes.ErrAuthOldRevision)
	case codes.Unknown:
		// During a change of leader: a proposal that raft dropped, a lease that nobody looked after.
		return IsAnswer(err, errProposalDropped) || IsAnswer(err, errNoPrimaryLessor)
	case codes.Canceled:
		// The context of the attempt was not over, so it is the server that
		// cancelled, as one does that is being stopped, or the client was closed.
		return !IsAnswer(err, errConnectionClosing)
	}
	return false
}

func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	switch {
	case errors.As(err, &etcd):
		return etcd.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// ended says that ctx is over and, where that tells more, what stood in the way. If it
// is the session's life that is over, Call says so.
func ended(ctx context.Context, last error) (because error) {
	err := ctx.Err()
	if err == nil {
		return last
	}
	switch {
	case errors.As(last, new(unsent)):
		defer func() { because = unsent{because} }()
	case InFlight(last):
		defer func() { because = inFlight{because} }()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrClosed):
		err = fmt.Errorf("%w: %v", err, cause) //nolint:errorlint // in words only: it is not this session, nor what is asked for
	case !errors.Is(cause, err):
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last == nil || errors.Is(last, context.Canceled) || errors.Is(last, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (last answer: %w)", err, last)
}

// sleep waits for d and reports whether ctx and life lasted that long.
func sleep(ctx, life context.Context, d time.Duration) bool {
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

// jitter spreads d over d/2 to 3d/2, so that those who failed together do not
// come back together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}
