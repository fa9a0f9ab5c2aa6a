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
	clientv3 "go.etcd.io/etcd/client/v3"
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
	"permission denied":     {rpctypes.ErrPermissionDenied, false, false},
	"no space":              {rpctypes.ErrNoSpace, false, true},
	"invalid auth token":    {rpctypes.ErrInvalidAuthToken, false, false},
	"authentication failed": {rpctypes.ErrAuthFailed, false, false},
	"user empty":            {rpctypes.ErrUserEmpty, false, false},
	"too many operations":   {rpctypes.ErrTooManyOps, false, false},
	"request too large":     {rpctypes.ErrRequestTooLarge, false, false},
	"lease not found":       {rpctypes.ErrLeaseNotFound, false, false},
	"compacted":             {rpctypes.ErrCompacted, false, false},
	"not capable":           {rpctypes.ErrNotCapable, false, false},
	"unimplemented":         {status.Error(codes.Unimplemented, "unknown method"), false, false},
	"too many requests":     {rpctypes.ErrTooManyRequests, true, false},
	"auth store changed":    {rpctypes.ErrAuthOldRevision, true, false},
	"no leader":             {rpctypes.ErrNoLeader, true, true},
	"leader changed":        {rpctypes.ErrLeaderChanged, true, true},
	"server stopped":        {rpctypes.ErrStopped, true, true},
	"timed out":             {rpctypes.ErrTimeout, true, true},
	"timed out, no leader":  {rpctypes.ErrTimeoutDueToLeaderFail, true, true},
	"unhealthy":             {rpctypes.ErrUnhealthy, true, true},
	"unavailable":           {status.Error(codes.Unavailable, "connection reset"), true, true},
	"server's deadline":     {status.Error(codes.DeadlineExceeded, "late"), true, true},
	"server cancelled":      {status.Error(codes.Canceled, "context canceled"), true, true},
	"aborted":               {status.Error(codes.Aborted, ""), true, true},
	"internal":              {status.Error(codes.Internal, "broken frame"), true, true},
	"proposal dropped":      {status.Error(codes.Unknown, "raft proposal dropped"), true, true},
	"no primary lessor":     {status.Error(codes.Unknown, "not a primary lessor"), true, true},
	"client closed":         {status.Error(codes.Canceled, "grpc: the client connection is closing"), false, true},
	"unknown":               {status.Error(codes.Unknown, "odd"), false, true},
	"corrupt":               {rpctypes.ErrCorrupt, false, false},
	"not a status":          {errors.New("odd"), false, true},
	"cancelled":             {context.Canceled, true, true},
	"out of time":           {context.DeadlineExceeded, true, true},
	"session lost":          {request.ErrLost, false, true},
	"session closed":        {request.ErrClosed, false, true},
	"answer too large":      {status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), false, true},
}

// Promise 10, R12
func TestCallTriesAgainWhatMayPassAndReturnsTheRest(t *testing.T) {
	for name, answer := range answers {
		inVirtualTime(t, name, func(t *testing.T) {
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
	}
}

func inVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// An interceptor of the client may have wrapped what etcd says, or put it in other words.
func TestAnswersAreJudgedAlikeHoweverTheyAreWrapped(t *testing.T) {
	for name, answer := range answers {
		forms := map[string]error{
			"plain":   answer.err,
			"wrapped": fmt.Errorf("wrapped: %w", answer.err),
		}
		said, isStatus := status.FromError(answer.err)
		if etcd, ok := answer.err.(rpctypes.EtcdError); ok { //nolint:errorlint // not wrapped
			said, isStatus = status.New(etcd.Code(), etcd.Error()), true
		}
		if isStatus {
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
	require.False(t, request.Doubtful(nil))
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

// The last answer is repeated until the context ends.
func TestAFailureIsDoubtfulIfAnyAttemptMayHaveTakenEffect(t *testing.T) {
	for name, test := range map[string]struct {
		first, last func(context.Context) error
		doubtful    bool
	}{
		"silence, then a refusal":       {silent, refused(rpctypes.ErrPermissionDenied), true},
		"silence, then one that passes": {silent, refused(rpctypes.ErrTooManyRequests), true},
		"refusals alone":                {refused(rpctypes.ErrTooManyRequests), refused(rpctypes.ErrTooManyRequests), false},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			next := test.first
			err := request.Do(ctx, context.Background(), func(ctx context.Context) error {
				op := next
				next = test.last
				return op(ctx)
			})
			require.ErrorIs(t, err, test.last(ctx))
			require.Equal(t, test.doubtful, request.Doubtful(err))
		})
	}
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

func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func refused(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// W7, promise 10: a request that hears nothing, or no answer that lasts.
func TestCallReturnsWithItsContextAndSaysHowItEnded(t *testing.T) {
	left := errors.New("the user left")
	for name, test := range map[string]struct {
		op    func(context.Context) error
		cause error // with which the context is cancelled; nil: it has a deadline
		is    []error
		says  string
	}{
		"deadline":               {silent, nil, []error{context.DeadlineExceeded}, "context deadline exceeded"},
		"cancelled with a cause": {silent, left, []error{context.Canceled, left}, "context canceled: the user left"},
		"during a pause": {refused(rpctypes.ErrTooManyRequests), nil, []error{context.DeadlineExceeded, rpctypes.ErrTooManyRequests},
			"context deadline exceeded (last answer: etcdserver: too many requests)"},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if test.cause == nil {
				limited, stop := context.WithTimeout(ctx, 2*time.Second)
				defer stop()
				ctx = limited
			} else {
				defer time.AfterFunc(2*time.Second, func() { cancel(test.cause) }).Stop()
			}
			start := time.Now()
			err := request.Do(ctx, context.Background(), test.op)
			require.Equal(t, 2*time.Second, time.Since(start))
			require.EqualError(t, err, test.says)
			for _, target := range test.is {
				require.ErrorIs(t, err, target)
			}
		})
	}
}

// R2: cleaning up after a call whose context is over.
func TestGrace(t *testing.T) {
	type key struct{}
	for name, test := range map[string]struct {
		limit, cancelled time.Duration // of the caller's context
		lasts            time.Duration
		err              error
	}{
		"cancelled before": {time.Hour, 0, 250 * time.Millisecond, context.Canceled},
		"expired before":   {-time.Hour, time.Hour, 250 * time.Millisecond, context.DeadlineExceeded},
		"expires soon":     {100 * time.Millisecond, time.Hour, 250 * time.Millisecond, context.DeadlineExceeded},
		"expires later":    {time.Minute, time.Hour, time.Minute, context.DeadlineExceeded},
		"cancelled soon":   {time.Hour, 100 * time.Millisecond, 250 * time.Millisecond, context.Canceled},
		"cancelled later":  {time.Hour, time.Minute, time.Minute, context.Canceled},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			caller, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "value"), test.limit)
			defer cancel()
			if test.cancelled == 0 {
				cancel()
			}
			defer time.AfterFunc(test.cancelled, cancel).Stop()
			graced, done := request.Grace(caller)
			defer done()
			start := time.Now()
			require.NoError(t, graced.Err())
			require.Equal(t, "value", graced.Value(key{}))
			<-graced.Done()
			require.Equal(t, test.lasts, time.Since(start))
			require.ErrorIs(t, graced.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(graced), test.err)
		})
	}
	caller, cancel := context.WithCancel(context.Background())
	defer cancel()
	graced, done := request.Grace(caller)
	_, limited := graced.Deadline()
	require.False(t, limited)
	done()
	require.Error(t, graced.Err())
	require.NoError(t, caller.Err())
}

// silentKV answers nothing.
type silentKV struct{ clientv3.KV }

func (silentKV) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, silent(ctx)
}

func (silentKV) Txn(ctx context.Context) clientv3.Txn { return silentTxn{ctx: ctx} }

type silentTxn struct {
	clientv3.Txn
	ctx context.Context
}

func (t silentTxn) If(...clientv3.Cmp) clientv3.Txn { return t }

func (t silentTxn) Then(...clientv3.Op) clientv3.Txn { return t }

func (t silentTxn) Commit() (*clientv3.TxnResponse, error) { return nil, silent(t.ctx) }

// Promise 10: etcd falls silent after it has denied something.
func TestFindingOutWhatIsDeniedEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := request.Denied(ctx, &clientv3.Client{KV: silentKV{}}, rpctypes.ErrPermissionDenied, "a/", "b/")
		require.Equal(t, rpctypes.ErrPermissionDenied, err)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}
