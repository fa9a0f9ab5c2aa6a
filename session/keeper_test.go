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

// keep returns a Keeper that is closed at the end of the test.
func keep(t *testing.T, f *fake, opts ...session.Option) *session.Keeper {
	t.Helper()
	k := session.Keep(f.Client(), append([]session.Option{session.WithMonotonicClock()}, opts...)...)
	t.Cleanup(func() {
		for _, requests := range []*requests{&f.Grants, &f.Renewals, &f.Revocations} {
			requests.Meet(answered)
		}
		require.NoError(t, k.Close(context.Background()))
	})
	return k
}

// keepOne is keep, with the Keeper's session.
func keepOne(t *testing.T, f *fake, opts ...session.Option) (*session.Keeper, *session.Session) {
	t.Helper()
	k := keep(t, f, opts...)
	return k, sessionOf(t, k)
}

// sessionOf returns the Keeper's session.
func sessionOf(t *testing.T, k *session.Keeper) *session.Session {
	t.Helper()
	s, err := k.Session(context.Background())
	require.NoError(t, err)
	return s
}

func requireNoCurrent(t *testing.T, k *session.Keeper) {
	t.Helper()
	s, ok := k.Current()
	require.Nil(t, s)
	require.False(t, ok)
}

func TestAKeepersSessionIsCreatedWhenItIsFirstNeededAndNotByLookingAtIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		time.Sleep(time.Minute)
		requireNoCurrent(t, k)
		require.Empty(t, f.Grants.Times())
		s := sessionOf(t, k)
		require.Same(t, s, sessionOf(t, k))
		shown, ok := k.Current()
		require.True(t, ok)
		require.Same(t, s, shown)

		f.Forget()
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrLost)
		requireNoCurrent(t, k)
		require.Len(t, f.Grants.Times(), 1)
		sessionOf(t, k)
		require.NoError(t, k.Close(context.Background()))
		requireNoCurrent(t, k)
	})
}

func TestKeepersCallersShareOneCreation(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(500 * time.Millisecond))
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
		require.Len(t, f.Grants.Times(), 1)
	})
}

func TestCallerOfAKeeperThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(lost)
		k := keep(t, f)
		var impatient sync.WaitGroup
		impatient.Go(func() {
			if _, err := ask(k, time.Second); err == nil {
				t.Error("a session out of nothing")
			}
		})
		synctest.Wait() // that one creates
		f.Grants.Meet(answered)
		s := sessionOf(t, k) // this one waits for it
		require.NoError(t, s.Err())
		impatient.Wait()
	})
}

// The default time-out includes waiting for others to fail.
func TestKeepersCallersDoNotWaitOneAfterTheOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(lost)
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

func TestKeeperReturnsErrorsOfCreationAndForgetsThem(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(refused(rpctypes.ErrPermissionDenied))
		k := keep(t, f)
		_, err := k.Session(context.Background())
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		f.Grants.Meet(answered)
		sessionOf(t, k)
	})
}

func TestClosedKeeperHasNoSessions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		unused := keep(t, f)
		k, s := keepOne(t, f)
		for _, k := range []*session.Keeper{k, k, unused} {
			require.NoError(t, k.Close(context.Background()))
			_, err := k.Session(context.Background())
			require.ErrorIs(t, err, session.ErrClosed)
		}
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Zero(t, f.LeaseCount())
		require.Len(t, f.Grants.Times(), 1)
	})
}

func TestKeeperReplacesASessionThatHasEndedAndTheOldOneStaysSo(t *testing.T) {
	type test struct {
		end func(f *fake, s *session.Session, suspend func(time.Duration))
		err error
	}
	inEach(t, map[string]test{
		"lost": {func(f *fake, s *session.Session, _ func(time.Duration)) {
			f.Renewals.Meet(lost)
			<-s.Done()
			f.Renewals.Meet(answered)
		}, session.ErrLost},
		"lost, before a timer fires": {func(_ *fake, _ *session.Session, suspend func(time.Duration)) { suspend(time.Minute) }, session.ErrLost},
		"closed":                     {func(_ *fake, s *session.Session, _ func(time.Duration)) { _ = s.Close(context.Background()) }, session.ErrClosed},
	}, func(t *testing.T, f *fake, test test) {
		now, suspend := suspendable()
		k, old := keepOne(t, f, session.WithClock(now))
		test.end(f, old, suspend)
		next := sessionOf(t, k)
		require.NotEqual(t, old.Lease(), next.Lease())
		time.Sleep(time.Minute)
		require.NoError(t, next.Err())
		require.ErrorIs(t, old.Err(), test.err)
	})
}
