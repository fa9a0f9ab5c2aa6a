package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

func TestDiscardAfterKeepsTheKeyForThatTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var gone atomic.Int64
		s.Link().DiscardAfter(time.Minute, "later", f.put("later", s.Lease()), func() { gone.Add(1) })
		s.Link().DiscardAfter(10*time.Second, "sooner", f.put("sooner", s.Lease()), func() {})
		time.Sleep(10*time.Second - 1)
		require.True(t, f.exists("sooner"))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.exists("sooner"), "although the one before it has longer to go")
		s.Link().Discard("now", f.put("now", s.Lease()), func() {})
		synctest.Wait()
		require.False(t, f.exists("now"))

		time.Sleep(50*time.Second - 2)
		require.True(t, f.exists("later"))
		require.Zero(t, gone.Load())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.exists("later"))
		require.EqualValues(t, 1, gone.Load())
		require.Len(t, f.requests(), 3, "none before its time")
		require.Zero(t, s.Link().Unsettled())
	})
}

// R2
func TestDiscardAfterTriesUntilItIsConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.txn = refused(rpctypes.ErrNoLeader)
		s := open(t, f)
		s.Link().DiscardAfter(time.Second, "key", f.put("key", s.Lease()), func() {})
		time.Sleep(time.Minute)
		require.Greater(t, len(f.requests()), 3)
		f.set(func(f *fake) { f.txn = nil })
		time.Sleep(20 * time.Second)
		require.False(t, f.exists("key"))
	})
}

func TestDiscardAfterEndsWithTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		gone := func() { t.Error("nobody looked") }
		s.Link().DiscardAfter(time.Minute, "key", f.put("key", s.Lease()), gone)
		synctest.Wait()
		require.NoError(t, s.Close(context.Background()))
		require.Zero(t, s.Link().Unsettled())
		s.Link().DiscardAfter(0, "key", 1, gone)
		time.Sleep(time.Hour)
		require.Empty(t, f.requests())
		require.True(t, f.exists("key"), "as long as its lease")
	})
}

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
