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
		require.Len(t, f.RevocationTimes(), 1)
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.NotErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorIs(t, context.Cause(s.Context()), session.ErrClosed)
		require.Equal(t, session.Closed, s.State())
		require.True(t, ended(s))

		renewals := f.RenewalTimes()
		time.Sleep(time.Minute)
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrClosed)
		require.Equal(t, renewals, f.RenewalTimes())
		require.Equal(t, session.Closed, s.State(), "not lost, however long ago")
	})
}

func TestConcurrentClosesRevokeOnceAndAllWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnRevoke = late(500 * time.Millisecond)
		s := open(t, f)
		start := time.Now()
		var closes sync.WaitGroup
		for range 10 {
			closes.Go(func() {
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if time.Since(start) != 500*time.Millisecond {
					t.Error("returned before the lease was revoked, or long after")
				}
			})
		}
		closes.Wait()
		require.Len(t, f.RevocationTimes(), 1)
	})
}

func TestCloseTriesAgainAndReturnsRefusals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnRevoke = refused(rpctypes.ErrNoLeader)
		s := open(t, f)
		heal := time.AfterFunc(time.Second, func() { f.Set(func(f *fake) { f.OnRevoke = refused(rpctypes.ErrPermissionDenied) }) })
		defer heal.Stop()
		require.ErrorIs(t, s.Close(context.Background()), rpctypes.ErrPermissionDenied)
		require.Greater(t, len(f.RevocationTimes()), 2)
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
	t.Run("periodic", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.OnRenew = slowToNotice
			s := open(t, f)
			time.Sleep(6 * time.Second) // one is under way
			require.NoError(t, s.Close(context.Background()))
			f.Set(func(f *fake) { require.Zero(t, f.InFlight) })
			require.Zero(t, f.LeaseCount())
			renewals := f.RenewalTimes()
			time.Sleep(time.Minute)
			require.Equal(t, renewals, f.RenewalTimes())
		})
	})
	t.Run("asked for", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.OnRenew, f.OnRevoke = slowToNotice, refused(rpctypes.ErrPermissionDenied)
			s := open(t, f)
			var renew sync.WaitGroup
			renew.Go(func() {
				if err := s.Renew(context.Background()); err == nil {
					t.Error("renewed")
				}
			})
			synctest.Wait()
			require.Error(t, s.Close(context.Background()))
			f.Set(func(f *fake) { require.Zero(t, f.InFlight) })
			renew.Wait()
			renewals := f.RenewalTimes()
			require.ErrorIs(t, s.Renew(context.Background()), session.ErrClosed)
			require.Equal(t, renewals, f.RenewalTimes())
		})
	})
	t.Run("many at once", func(t *testing.T) {
		for range 50 {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.OnRevoke = refused(rpctypes.ErrPermissionDenied)
				s := open(t, f)
				var closed atomic.Bool
				f.Set(func(f *fake) {
					f.OnRenew = func(ctx context.Context, do func() error) error {
						if closed.Load() {
							t.Error("renewed after Close")
						}
						return do()
					}
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
		f.Set(func(f *fake) { clear(f.Alive) })
		require.NoError(t, s.Close(context.Background()), "unknown to etcd")

		f.Set(func(f *fake) { f.OnRenew, f.OnRevoke = lost, lost })
		s = open(t, f)
		<-s.Done()
		start, revocations := time.Now(), f.RevocationTimes()
		require.NoError(t, s.Close(context.Background()), "lost")
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.Equal(t, revocations, f.RevocationTimes())
	})
}

// Etcd gets a quarter of a second even if the context is over, and 10 s if it has no deadline.
func TestCloseReturnsWithItsContextAndCanBeRepeated(t *testing.T) {
	for wait, caller := range map[time.Duration]func() (context.Context, context.CancelFunc){
		20 * time.Second: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 20*time.Second)
		},
		10 * time.Second:       func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
		250 * time.Millisecond: func() (context.Context, context.CancelFunc) { return context.WithTimeout(context.Background(), -1) },
	} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.OnRevoke = lost
			s := open(t, f)
			ctx, cancel := caller()
			defer cancel()
			var others sync.WaitGroup
			others.Go(func() { // does not keep this one waiting
				long, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = s.Close(long)
			})
			synctest.Wait()
			start := time.Now()
			err := s.Close(ctx)
			require.Equal(t, wait, time.Since(start))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, context.Canceled, "nothing was cancelled")
			require.ErrorIs(t, s.Err(), session.ErrClosed)
			require.Empty(t, f.RenewalTimes(), "so that the server drops the lease by itself")
			others.Wait()

			f.Set(func(f *fake) { f.OnRevoke, f.Alive[s.Lease()] = late(200*time.Millisecond), time.Now().Add(time.Hour) })
			over, cancel := context.WithCancel(context.Background())
			cancel()
			require.NoError(t, s.Close(over))
			require.Zero(t, f.LeaseCount())
		})
	}
}
