package link_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// The cause of a context is whatever its maker says, as with the context of a hold on another session.
func TestTheCauseOfAContextIsNoNewsOfTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.cluster.LoseRequest("LeaseKeepAlive")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(fmt.Errorf("another session is over: %w", rpctypes.ErrLeaseNotFound))
		require.ErrorIs(t, s.Renew(ctx), context.Canceled)
		_, _, err := s.Link().Commit(ctx, removals(t, f, s, "a", 1)[0])
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, s.Err())
	})
}

func TestCallEndsWithALoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.cluster.LoseRequest("LeaseKeepAlive")
		deadline := s.Deadline()
		require.ErrorIs(t, s.Link().Call(context.Background(), silent), session.ErrLost)
		require.Equal(t, deadline, time.Now())
	})
}

func TestCallEndsWithCloseAndBeginsNoMore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *line, s *session.Session) {
		closed := make(chan error, 1)
		time.AfterFunc(time.Second, func() { closed <- s.Close(context.Background()) })
		start := time.Now()
		require.ErrorIs(t, s.Link().Call(context.Background(), silent), session.ErrClosed)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, <-closed)
		require.ErrorIs(t, s.Link().Call(context.Background(), func(context.Context) error { panic("a request was made") }), session.ErrClosed)
	})
}
