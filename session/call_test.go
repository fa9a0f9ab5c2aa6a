package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// answers are what etcd and gRPC say to a write: whether to try again, and
// whether it may have been applied.
var answers = map[string]struct {
	err      error
	passing  bool
	doubtful bool
}{
	"permission denied":      {rpctypes.ErrPermissionDenied, false, false},
	"no space":               {rpctypes.ErrNoSpace, false, true},
	"invalid auth token":     {rpctypes.ErrInvalidAuthToken, false, false},
	"authentication failed":  {rpctypes.ErrAuthFailed, false, false},
	"user empty":             {rpctypes.ErrUserEmpty, false, false},
	"too many operations":    {rpctypes.ErrTooManyOps, false, false},
	"request too large":      {rpctypes.ErrRequestTooLarge, false, false},
	"compacted":              {rpctypes.ErrCompacted, false, false},
	"not capable":            {rpctypes.ErrNotCapable, false, false},
	"unimplemented":          {status.Error(codes.Unimplemented, "unknown method"), false, false},
	"too many requests":      {rpctypes.ErrTooManyRequests, true, false},
	"auth store changed":     {rpctypes.ErrAuthOldRevision, true, false},
	"no leader":              {rpctypes.ErrNoLeader, true, true},
	"leader changed":         {rpctypes.ErrLeaderChanged, true, true},
	"server stopped":         {rpctypes.ErrStopped, true, true},
	"timed out":              {rpctypes.ErrTimeout, true, true},
	"timed out, no leader":   {rpctypes.ErrTimeoutDueToLeaderFail, true, true},
	"unhealthy":              {rpctypes.ErrUnhealthy, true, true},
	"unavailable":            {status.Error(codes.Unavailable, "connection reset"), true, true},
	"server's deadline":      {status.Error(codes.DeadlineExceeded, "late"), true, true},
	"server cancelled":       {status.Error(codes.Canceled, "context canceled"), true, true},
	"aborted":                {status.Error(codes.Aborted, ""), true, true},
	"internal":               {status.Error(codes.Internal, "broken frame"), true, true},
	"proposal dropped":       {status.Error(codes.Unknown, "raft proposal dropped"), true, true},
	"no primary lessor":      {status.Error(codes.Unknown, "not a primary lessor"), true, true},
	"client closed":          {status.Error(codes.Canceled, "grpc: the client connection is closing"), false, true},
	"unknown":                {status.Error(codes.Unknown, "odd"), false, true},
	"corrupt":                {rpctypes.ErrCorrupt, false, false},
	"corrupt, raw":           {rpctypes.ErrGRPCCorrupt, false, false},
	"not a status":           {errors.New("odd"), false, true},
	"too many requests, raw": {rpctypes.ErrGRPCRequestTooManyRequests, true, false},
	"no space, raw":          {rpctypes.ErrGRPCNoSpace, false, true},
	"answer too large":       {status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), false, true},
}

// Promise 10, R12
func TestCallTriesAgainWhatMayPassAndReturnsTheRest(t *testing.T) {
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				calls := 0
				err := s.Link().Call(context.Background(), func(context.Context) error {
					if calls++; calls <= 3 {
						return answer.err
					}
					return nil
				})
				if answer.passing {
					require.NoError(t, err)
					require.Equal(t, 4, calls)
					return
				}
				require.ErrorIs(t, err, answer.err)
				require.Equal(t, 1, calls)
				require.NoError(t, s.Err())
			})
		})
	}
}

// An interceptor of the client may have wrapped what etcd says, or put it in other words.
func TestAnswersAreJudgedAlikeHoweverTheyAreWrapped(t *testing.T) {
	for name, answer := range answers {
		said := status.Convert(answer.err)
		if etcd, ok := answer.err.(rpctypes.EtcdError); ok { //nolint:errorlint // not wrapped
			said = status.New(etcd.Code(), etcd.Error())
		}
		forms := map[string]error{
			"plain":   answer.err,
			"wrapped": fmt.Errorf("wrapped: %w", answer.err),
		}
		if name != "not a status" {
			forms["a status"] = said.Err()
			forms["a wrapped status"] = fmt.Errorf("wrapped: %w", said.Err())
			forms["a longer status"] = status.Error(said.Code(), "proxy: "+said.Message())
		}
		for form, err := range forms {
			require.Equal(t, answer.passing, request.Passing(err), "%s, %s", name, form)
			require.Equal(t, answer.doubtful, request.Doubtful(err), "%s, %s", name, form)
		}
	}
	require.False(t, request.Passing(nil))
}

func TestAnAnswerIsKnownInWhicheverForm(t *testing.T) {
	for name, err := range map[string]error{
		"plain":            rpctypes.ErrPermissionDenied,
		"wrapped":          fmt.Errorf("wrapped: %w", rpctypes.ErrPermissionDenied),
		"a status":         rpctypes.ErrGRPCPermissionDenied,
		"a wrapped status": fmt.Errorf("wrapped: %w", rpctypes.ErrGRPCPermissionDenied),
		"of a watch":       status.Error(codes.FailedPrecondition, rpctypes.ErrGRPCPermissionDenied.Error()),
	} {
		require.True(t, request.IsAnswer(err, rpctypes.ErrPermissionDenied), name)
		require.True(t, request.IsAnswer(err, rpctypes.ErrGRPCPermissionDenied), name)
		require.False(t, request.IsAnswer(err, rpctypes.ErrUserEmpty), name)
	}
	require.False(t, request.IsAnswer(nil, rpctypes.ErrUserEmpty))
	require.False(t, request.IsAnswer(errors.New(rpctypes.ErrUserEmpty.Error()), rpctypes.ErrUserEmpty), "not etcd's")
}

// R1
func TestDoubtfulWritesAreThoseThatMayHaveBeenApplied(t *testing.T) {
	for name, answer := range answers {
		require.Equal(t, answer.doubtful, request.Doubtful(answer.err), name)
		require.Equal(t, answer.doubtful, request.Doubtful(fmt.Errorf("wrapped: %w", answer.err)), name)
	}
	require.False(t, request.Doubtful(nil))
	require.True(t, request.Doubtful(context.Canceled))
	require.True(t, request.Doubtful(context.DeadlineExceeded))
	require.True(t, request.Doubtful(session.ErrClosed))
	require.True(t, request.Doubtful(session.ErrLost))
}

// The cause of a context is whatever its maker says, as with the context of a hold on another session.
func TestTheCauseOfAContextIsNoNewsOfTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.renew = lost })
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(fmt.Errorf("another session is over: %w", rpctypes.ErrLeaseNotFound))
		require.ErrorIs(t, s.Renew(ctx), context.Canceled)
		_, _, err := s.Link().Commit(ctx, removal("a", 1))
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, s.Err())
	})
}

// R1: the first attempt's answer is lost, a later one is refused.
func TestRefusalAfterASilentAttemptIsStillDoubtful(t *testing.T) {
	for name, last := range map[string]error{"final": rpctypes.ErrPermissionDenied, "passing": rpctypes.ErrTooManyRequests} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				calls := 0
				err := s.Link().Call(ctx, func(ctx context.Context) error {
					if calls++; calls == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return last
				})
				require.ErrorIs(t, err, last)
				require.True(t, request.Doubtful(err))
			})
		})
	}
}

func TestRefusalsAloneAreNotDoubtful(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := s.Link().Call(ctx, func(context.Context) error { return rpctypes.ErrTooManyRequests })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, request.Doubtful(err))
	})
}

func TestAttemptsGetMoreAndMoreTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var given []time.Duration
		err := s.Link().Call(context.Background(), func(ctx context.Context) error {
			if len(given) == 6 {
				return nil
			}
			start := time.Now()
			<-ctx.Done()
			given = append(given, time.Since(start))
			return ctx.Err()
		})
		require.NoError(t, err)
		second := time.Second
		require.Equal(t, []time.Duration{3 * second, 6 * second, 12 * second, 12 * second, 12 * second, 12 * second}, given)
	})
}

// R12
func TestCallPausesBetweenRefusedAttempts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		calls := 0
		_ = s.Link().Call(ctx, func(context.Context) error {
			calls++
			return rpctypes.ErrTooManyRequests
		})
		require.Greater(t, calls, 30, "a pause is 1.5 s at most")
		require.Less(t, calls, 140, "a pause is 0.5 s at least, after the first few")
	})
}

// W7, promise 10: a request that hears nothing.
func TestCallReturnsWithItsContextAndSaysHowItEnded(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			start := time.Now()
			err := s.Link().Call(ctx, silent)
			require.Equal(t, 2*time.Second, time.Since(start))
			require.EqualError(t, err, "context deadline exceeded")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, s.Err())
		})
	})
	t.Run("cancelled with a cause", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			cause := errors.New("the user left")
			defer time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) }).Stop()
			start := time.Now()
			err := s.Link().Call(ctx, silent)
			require.Equal(t, 1500*time.Millisecond, time.Since(start))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
		})
	})
	t.Run("during a pause", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := s.Link().Call(ctx, func(context.Context) error { return rpctypes.ErrTooManyRequests })
			require.Equal(t, 10*time.Second, time.Since(start))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, rpctypes.ErrTooManyRequests)
			require.EqualError(t, err, "context deadline exceeded (last answer: etcdserver: too many requests)")
		})
	})
}

func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// W1, promise 11
func TestCallEndsWithTheSession(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.renew = lost
			s := open(t, f)
			deadline := s.Deadline()
			require.ErrorIs(t, s.Link().Call(context.Background(), silent), session.ErrLost)
			require.Equal(t, deadline, time.Now())
		})
	})
	t.Run("closed", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			var closing sync.WaitGroup
			closing.Go(func() {
				time.Sleep(time.Second)
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			start := time.Now()
			require.ErrorIs(t, s.Link().Call(context.Background(), silent), session.ErrClosed)
			require.Equal(t, time.Second, time.Since(start))
			closing.Wait()
		})
	})
	t.Run("ended before", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			require.NoError(t, s.Close(context.Background()))
			err := s.Link().Call(context.Background(), func(context.Context) error {
				t.Error("a request was made")
				return nil
			})
			require.ErrorIs(t, err, session.ErrClosed)
		})
	})
}
