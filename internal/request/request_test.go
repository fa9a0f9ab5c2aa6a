package request_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/internal/request"
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
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := request.Do(context.Background(), context.Background(), func(context.Context) error {
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

func TestDoubtfulWritesAreThoseThatMayHaveBeenApplied(t *testing.T) {
	for name, answer := range answers {
		require.Equal(t, answer.doubtful, request.Doubtful(answer.err), name)
		require.Equal(t, answer.doubtful, request.Doubtful(fmt.Errorf("wrapped: %w", answer.err)), name)
	}
	require.False(t, request.Doubtful(nil))
	require.True(t, request.Doubtful(context.Canceled))
	require.True(t, request.Doubtful(context.DeadlineExceeded))
	require.True(t, request.Doubtful(request.ErrClosed))
	require.True(t, request.Doubtful(request.ErrLost))
}

// The first attempt's answer is lost, a later one is refused.
func TestRefusalAfterASilentAttemptIsStillDoubtful(t *testing.T) {
	for name, last := range map[string]error{"final": rpctypes.ErrPermissionDenied, "passing": rpctypes.ErrTooManyRequests} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				calls := 0
				err := request.Do(ctx, context.Background(), func(ctx context.Context) error {
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
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := request.Do(ctx, context.Background(), func(context.Context) error { return rpctypes.ErrTooManyRequests })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, request.Doubtful(err))
	})
}

func TestAttemptsGetMoreAndMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []time.Duration
		err := request.Do(context.Background(), context.Background(), func(ctx context.Context) error {
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
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		calls := 0
		_ = request.Do(ctx, context.Background(), func(context.Context) error {
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
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			start := time.Now()
			err := request.Do(ctx, context.Background(), silent)
			require.Equal(t, 2*time.Second, time.Since(start))
			require.EqualError(t, err, "context deadline exceeded")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
	t.Run("cancelled with a cause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			cause := errors.New("the user left")
			defer time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) }).Stop()
			start := time.Now()
			err := request.Do(ctx, context.Background(), silent)
			require.Equal(t, 1500*time.Millisecond, time.Since(start))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
		})
	})
	t.Run("during a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := request.Do(ctx, context.Background(), func(context.Context) error { return rpctypes.ErrTooManyRequests })
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

// graceCases are callers whose contexts end, and how long what cleans up for them lasts.
var graceCases = map[string]struct {
	caller func() (context.Context, context.CancelFunc)
	lasts  time.Duration
	err    error
}{
	"cancelled before": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}, 250 * time.Millisecond, context.Canceled},
	"expired before": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), -time.Hour)
	}, 250 * time.Millisecond, context.DeadlineExceeded},
	"expires soon": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 100*time.Millisecond)
	}, 250 * time.Millisecond, context.DeadlineExceeded},
	"expires later": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), time.Minute)
	}, time.Minute, context.DeadlineExceeded},
	"cancelled soon": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		return ctx, cancel
	}, 250 * time.Millisecond, context.Canceled},
	"cancelled later": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		time.AfterFunc(time.Minute, cancel)
		return ctx, cancel
	}, time.Minute, context.Canceled},
}

// R2: cleaning up after a call whose context is over.
func TestGrace(t *testing.T) {
	type key struct{}
	for name, test := range graceCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, cancel := test.caller()
				defer cancel()
				graced, done := request.Grace(context.WithValue(caller, key{}, "value"))
				defer done()
				start := time.Now()
				require.NoError(t, graced.Err())
				require.Equal(t, "value", graced.Value(key{}))
				<-graced.Done()
				require.Equal(t, test.lasts, time.Since(start))
				require.ErrorIs(t, graced.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(graced), test.err)
			})
		})
	}
	t.Run("without an end", func(t *testing.T) {
		graced, done := request.Grace(context.Background())
		_, limited := graced.Deadline()
		require.False(t, limited)
		done()
		require.Error(t, graced.Err())
	})
	t.Run("ended by its owner", func(t *testing.T) {
		caller, cancel := context.WithCancel(context.Background())
		defer cancel()
		graced, done := request.Grace(caller)
		done()
		require.Error(t, graced.Err())
		require.NoError(t, caller.Err())
	})
}
