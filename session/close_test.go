package session_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

func TestCloseRevokesOnceAndStopsRenewing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		time.Sleep(6 * time.Second)
		for range 3 {
			require.NoError(t, s.Close(context.Background()))
		}
		require.Zero(t, f.LeaseCount())
		require.Len(t, f.Revocations.Times(), 1)
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.NotErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorIs(t, context.Cause(s.Context()), session.ErrClosed)
		require.Equal(t, session.Closed, s.State())
		require.True(t, ended(s))

		renewals := f.Renewals.Times()
		time.Sleep(time.Minute)
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrClosed)
		require.Equal(t, renewals, f.Renewals.Times())
		require.Equal(t, session.Closed, s.State(), "not lost, however long ago")
	})
}

func TestConcurrentClosesRevokeOnceAndAllWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Revocations.Meet(late(500 * time.Millisecond))
		s := open(t, f)
		start := time.Now()
		var closes sync.WaitGroup
		for range 10 {
			closes.Go(func() {
				if err := s.Close(context.Background()); err != nil || time.Since(start) != 500*time.Millisecond {
					t.Error("returned before the lease was revoked, or long after:", err)
				}
			})
		}
		closes.Wait()
		require.Len(t, f.Revocations.Times(), 1)
	})
}

func TestCloseTriesAgainAndReturnsRefusals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Revocations.Meet(refused(rpctypes.ErrNoLeader))
		s := open(t, f)
		heal := time.AfterFunc(time.Second, func() { f.Revocations.Meet(refused(rpctypes.ErrPermissionDenied)) })
		defer heal.Stop()
		require.ErrorIs(t, s.Close(context.Background()), rpctypes.ErrPermissionDenied)
		require.Greater(t, len(f.Revocations.Times()), 2)
	})
}

// slowToNotice takes a while to see that its context is over, as a request that
// is on its way already does.
func slowToNotice(ctx context.Context, do func() error) error {
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond)
	return do()
}

func TestNothingIsRenewedAfterClose(t *testing.T) {
	inEach(t, map[string]func(s *session.Session){
		"periodic": func(*session.Session) { time.Sleep(6 * time.Second) },
		"asked for": func(s *session.Session) {
			go func() {
				if s.Renew(context.Background()) == nil {
					panic("renewed")
				}
			}()
		},
	}, func(t *testing.T, f *fake, renew func(s *session.Session)) {
		f.Renewals.Meet(slowToNotice)
		f.Revocations.Meet(refused(rpctypes.ErrPermissionDenied))
		s := open(t, f)
		renew(s)
		synctest.Wait()
		require.Equal(t, 1, f.Renewals.InFlight())
		require.Error(t, s.Close(context.Background()))
		require.Zero(t, f.Renewals.InFlight())
		renewals := f.Renewals.Times()
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrClosed)
		time.Sleep(time.Minute)
		require.Equal(t, renewals, f.Renewals.Times())
	})
	t.Run("many at once", func(t *testing.T) {
		for range 50 {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.Revocations.Meet(refused(rpctypes.ErrPermissionDenied))
				s := open(t, f)
				var closed atomic.Bool
				f.Renewals.Meet(func(_ context.Context, do func() error) error {
					if closed.Load() {
						t.Error("renewed after Close")
					}
					return do()
				})
				var renewing sync.WaitGroup
				for range 4 {
					renewing.Go(func() {
						for s.Renew(context.Background()) == nil {
						}
					})
				}
				require.Error(t, s.Close(context.Background()))
				closed.Store(true)
				renewing.Wait()
			})
		}
	})
}

func TestCloseWithoutALeaseIsNil(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.Forget()
		require.NoError(t, s.Close(context.Background()), "unknown to etcd")

		f.Renewals.Meet(lost)
		f.Revocations.Meet(lost)
		s = open(t, f)
		<-s.Done()
		start, revocations := time.Now(), f.Revocations.Times()
		require.NoError(t, s.Close(context.Background()), "lost")
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.Equal(t, revocations, f.Revocations.Times())
	})
}

func TestCloseReturnsWithItsContextAndCanBeRepeated(t *testing.T) {
	type test struct {
		caller func() (context.Context, context.CancelFunc)
		wait   time.Duration
	}
	within := func(d time.Duration) func() (context.Context, context.CancelFunc) {
		return func() (context.Context, context.CancelFunc) { return context.WithTimeout(context.Background(), d) }
	}
	inEach(t, map[string]test{
		"a deadline":    {within(20 * time.Second), 20 * time.Second},
		"no deadline":   {func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }, 10 * time.Second},
		"ended already": {within(-1), 250 * time.Millisecond}, // etcd gets that long all the same
	}, func(t *testing.T, f *fake, test test) {
		f.Revocations.Meet(lost)
		s := open(t, f)
		ctx, cancel := test.caller()
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() { // does not keep this one waiting
			long, cancel := within(time.Minute)()
			defer cancel()
			_ = s.Close(long)
		})
		synctest.Wait()
		start := time.Now()
		err := s.Close(ctx)
		require.Equal(t, test.wait, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled, "nothing was cancelled")
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Empty(t, f.Renewals.Times(), "so that the server drops the lease by itself")
		others.Wait()

		f.Revocations.Meet(late(200 * time.Millisecond))
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, s.Close(over))
		require.Zero(t, f.LeaseCount())
	})
}
