package link_test

import (
	"context"
	"fmt"
	"sync"
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
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.cluster.LoseRequest("LeaseKeepAlive")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(fmt.Errorf("another session is over: %w", rpctypes.ErrLeaseNotFound))
		require.ErrorIs(t, s.Renew(ctx), context.Canceled)
		_, _, err := s.Link().Commit(ctx, removals(t, f, s, "a", 1)[0])
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, s.Err())
	})
}

func TestCallEndsWithTheSession(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *line) {
			f.cluster.LoseRequest("LeaseKeepAlive")
			s := open(t, f)
			deadline := s.Deadline()
			require.ErrorIs(t, s.Link().Call(context.Background(), silent), session.ErrLost)
			require.Equal(t, deadline, time.Now())
		})
	})
	t.Run("closed", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *line) {
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
		inVirtualTime(t, func(t *testing.T, f *line) {
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
