package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

// What Call does, without a session.
func TestRetryEndsWithAnAnswerOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		require.NoError(t, session.Retry(context.Background(), func(ctx context.Context) error {
			switch tries++; tries {
			case 1:
				return rpctypes.ErrNoLeader
			case 2:
				<-ctx.Done() // each attempt has a time of its own
				return ctx.Err()
			}
			return nil
		}))
		require.Equal(t, 3, tries)

		tries = 0
		refusal := session.Retry(context.Background(), func(context.Context) error {
			tries++
			return rpctypes.ErrPermissionDenied
		})
		require.ErrorIs(t, refusal, rpctypes.ErrPermissionDenied)
		require.Equal(t, 1, tries)

		ctx, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("reason")
		time.AfterFunc(time.Minute, func() { cancel(reason) })
		start := time.Now()
		err := session.Retry(ctx, func(context.Context) error { return rpctypes.ErrNoLeader })
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.ErrorIs(t, err, rpctypes.ErrNoLeader)
		require.Equal(t, time.Minute, time.Since(start))
	})
}
