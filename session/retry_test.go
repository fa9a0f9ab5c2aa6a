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

// What package request promises of its Do.
func TestRetryEndsWithAnAnswerOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		op := func(ctx context.Context) error {
			switch tries++; tries {
			case 2:
				return silent(ctx) // each attempt has a time of its own
			case 3:
				return rpctypes.ErrPermissionDenied
			}
			return rpctypes.ErrNoLeader
		}
		require.ErrorIs(t, session.Retry(context.Background(), op), rpctypes.ErrPermissionDenied)
		require.Equal(t, 3, tries)

		reason := errors.New("reason")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, reason)
		defer cancel()
		start := time.Now()
		err := session.Retry(ctx, op)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reason)
		require.ErrorIs(t, err, rpctypes.ErrNoLeader)
		require.Equal(t, time.Minute, time.Since(start))
	})
}
