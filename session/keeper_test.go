package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

func keep(t *testing.T, f *fake, opts ...session.Option) *session.Keeper {
	t.Helper()
	k := session.Keep(f.Client(), append([]session.Option{session.WithMonotonicClock()}, opts...)...)
	t.Cleanup(func() {
		f.Set(func(f *fake) { f.OnGrant, f.OnRenew, f.OnRevoke = nil, nil, nil })
		require.NoError(t, k.Close(context.Background()))
	})
	return k
}

func TestKeeperCreatesItsSessionWhenFirstNeeded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		time.Sleep(time.Minute)
		require.Empty(t, f.GrantTimes())
		first, err := k.Session(context.Background())
		require.NoError(t, err)
		second, err := k.Session(context.Background())
		require.NoError(t, err)
		require.Same(t, first, second)
		require.Len(t, f.GrantTimes(), 1)
	})
}

func TestKeepersCallersShareOneCreation(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = late(500 * time.Millisecond)
		k := keep(t, f)
		sessions := make(chan *session.Session, 20)
		for range cap(sessions) {
			go func() {
				s, err := k.Session(context.Background())
				if err != nil {
					t.Error(err)
				}
				sessions <- s
			}()
		}
		first := <-sessions
		for range cap(sessions) - 1 {
			require.Same(t, first, <-sessions)
		}
		require.Len(t, f.GrantTimes(), 1)
	})
}

func TestCallerOfAKeeperThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = lost
		k := keep(t, f)
		impatient, giveUp := context.WithCancel(context.Background())
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := k.Session(impatient); err == nil {
				t.Error("a session out of nothing")
			}
		})
		synctest.Wait() // that one creates
		callers.Go(func() {
			s, err := k.Session(context.Background())
			if err != nil || s.Err() != nil {
				t.Error("the other caller failed:", err)
			}
		})
		synctest.Wait() // this one waits for it
		f.Set(func(f *fake) { f.OnGrant = nil })
		giveUp()
		callers.Wait()
	})
}

// The default time-out includes waiting for others to fail.
func TestKeepersCallersDoNotWaitOneAfterTheOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = lost
		k := keep(t, f)
		start := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if _, err := k.Session(context.Background()); err == nil {
					t.Error("a session out of nothing")
				}
			})
		}
		callers.Wait()
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestKeeperReturnsErrorsOfCreation(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = refused(rpctypes.ErrPermissionDenied)
		k := keep(t, f)
		_, err := k.Session(context.Background())
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		f.Set(func(f *fake) { f.OnGrant = nil })
		_, err = k.Session(context.Background())
		require.NoError(t, err, "the failure is not remembered")
	})
}

func TestClosedKeeperHasNoSessions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		s, err := k.Session(context.Background())
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, k.Close(context.Background()))
		}
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Zero(t, f.LeaseCount())
		_, err = k.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)

		unused := keep(t, f)
		require.NoError(t, unused.Close(context.Background()))
		_, err = unused.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)
		require.Len(t, f.GrantTimes(), 1)
	})
}

func TestKeepersCloseCanBeRepeatedAfterAFailure(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnRevoke = lost
		k := keep(t, f)
		_, err := k.Session(context.Background())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, k.Close(ctx), context.DeadlineExceeded)
		f.Set(func(f *fake) { f.OnRevoke = nil })
		require.NoError(t, k.Close(context.Background()))
		require.Zero(t, f.LeaseCount())
	})
}

func TestSessionIsItsOwnSource(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var source session.Source = s
		same, err := source.Session(context.Background())
		require.NoError(t, err)
		require.Same(t, s, same)
		require.NoError(t, s.Close(context.Background()))
		_, err = source.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)
	})
}

func TestKeeperReplacesASessionThatHasEndedAndTheOldOneStaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		end func(f *fake, s *session.Session, suspend func(time.Duration))
		err error
	}{
		"lost": {func(f *fake, s *session.Session, _ func(time.Duration)) {
			f.Set(func(f *fake) { f.OnRenew = lost })
			<-s.Done()
			f.Set(func(f *fake) { f.OnRenew = nil })
		}, session.ErrLost},
		"lost, before a timer fires": {func(_ *fake, _ *session.Session, suspend func(time.Duration)) { suspend(time.Minute) }, session.ErrLost},
		"closed":                     {func(_ *fake, s *session.Session, _ func(time.Duration)) { _ = s.Close(context.Background()) }, session.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				now, suspend := suspendable()
				k := keep(t, f, session.WithClock(now))
				old, err := k.Session(context.Background())
				require.NoError(t, err)
				test.end(f, old, suspend)
				next, err := k.Session(context.Background())
				require.NoError(t, err)
				require.NotEqual(t, old.Lease(), next.Lease())
				time.Sleep(time.Minute)
				require.NoError(t, next.Err())
				require.ErrorIs(t, old.Err(), test.err)
			})
		})
	}
}
