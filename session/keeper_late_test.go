package session_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

// ask calls Session with a context that lasts for d.
func ask(k *session.Keeper, d time.Duration) (*session.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return k.Session(ctx)
}

// askInVain is ask where the answer takes longer.
func askInVain(t *testing.T, k *session.Keeper, d time.Duration) error {
	t.Helper()
	_, err := ask(k, d)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	return err
}

// The lease began when the request left, however late the caller came that uses it.
func TestLeaseThatComesTooLateForItsCallerServesTheNext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(2 * time.Second))
		k := keep(t, f)
		start := time.Now()
		_ = askInVain(t, k, 200*time.Millisecond)
		time.Sleep(3 * time.Second)
		require.Equal(t, start.Add(13500*time.Millisecond), sessionOf(t, k).Deadline())
		require.Len(t, f.Grants.Times(), 1)
		require.Equal(t, 1, f.LeaseCount())
	})
}

// A caller that has given up does not shorten the time in which etcd may answer, nor do others prolong
// it for ever.
func TestCreationOfASessionOutlivesItsLastCallerByTenSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(lost)
		k := keep(t, f)
		start := time.Now()
		_ = askInVain(t, k, time.Second)
		time.Sleep(time.Minute)
		require.Equal(t, []float64{0, 3, 9}, secondsSince(start, f.Grants.Times()), "attempts of 3 s, 6 s and 12 s")

		f.Grants.Meet(answered)
		sessionOf(t, k)
	})
}

func TestCallerThatComesBackProlongsTheCreationOfASession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(8 * time.Second)) // the third attempt has 12 s
		k := keep(t, f)
		start := time.Now()
		for time.Since(start) < 16*time.Second {
			_ = askInVain(t, k, time.Second)
			time.Sleep(time.Second)
		}
		sessionOf(t, k)
		require.Equal(t, 17*time.Second, time.Since(start))
		require.Equal(t, []float64{0, 3, 9}, secondsSince(start, f.Grants.Times()))
	})
}

func TestCloseOfAKeeperEndsTheCreationOfItsSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(refused(rpctypes.ErrNoLeader))
		k := keep(t, f)
		var caller sync.WaitGroup
		start := time.Now()
		caller.Go(func() {
			_, err := ask(k, time.Hour)
			if time.Since(start) != time.Minute || !errors.Is(err, session.ErrClosed) {
				t.Error("Close was not told to a caller that waited:", err)
			}
		})
		time.Sleep(time.Minute)
		require.NoError(t, k.Close(context.Background()))
		caller.Wait()
		attempts := len(f.Grants.Times())
		time.Sleep(time.Hour)
		require.Len(t, f.Grants.Times(), attempts)
	})
}

func TestLeaseThatComesAfterCloseIsRevoked(t *testing.T) {
	inEach(t, named(time.Second, 100*time.Millisecond), func(t *testing.T, f *fake, wait time.Duration) {
		f.Grants.Meet(late(500 * time.Millisecond))
		k := keep(t, f)
		var patient sync.WaitGroup
		patient.Go(func() {
			if _, err := ask(k, time.Minute); !errors.Is(err, session.ErrClosed) {
				t.Error(err)
			}
		})
		_ = askInVain(t, k, 50*time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		err := k.Close(ctx)
		patient.Wait()
		if wait > 500*time.Millisecond {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
		}
		require.Len(t, f.Revocations.Times(), 1)
		require.Zero(t, f.LeaseCount())
	})
}

// The lease of a session that Close could not wait for is not renewed.
func TestCloseThatGivesUpLeavesNothingThatRenewsAndCanBeRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(500 * time.Millisecond))
		f.Revocations.Meet(lost)
		k := keep(t, f)
		_ = askInVain(t, k, 50*time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, k.Close(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Empty(t, f.Renewals.Times())
		f.Revocations.Meet(answered)
		require.NoError(t, k.Close(context.Background()))
		require.Zero(t, f.LeaseCount())
	})
}

// A server that does not answer is not waited for as long as it would be otherwise.
func TestCloseGivesALeaseThatIsBeingGrantedThreeSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(lost)
		k := keep(t, f)
		_ = askInVain(t, k, 10*time.Second) // the attempt under way has 12 s
		start := time.Now()
		require.NoError(t, k.Close(context.Background()))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Len(t, f.Grants.Times(), 3)
	})
}

func TestCallerOfAKeeperIsToldWhatTheLastAttemptMetWith(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(refused(rpctypes.ErrNoLeader))
		k := keep(t, f)
		for range 2 { // the second joins a creation that goes on
			require.ErrorIs(t, askInVain(t, k, time.Second), rpctypes.ErrNoLeader)
		}
	})
}

// Callers that come and go while the answers are slow, and a keeper that is closed in the midst of it.
func TestKeeperLeavesNoLeaseWhateverTheMoment(t *testing.T) {
	inEach(t, named(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), func(t *testing.T, f *fake, delay int) {
		f.Grants.Meet(late(time.Duration(delay%4) * 100 * time.Millisecond))
		k := keep(t, f)
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				if s, err := ask(k, time.Duration(i%3+1)*100*time.Millisecond); err == nil {
					_ = s.Close(context.Background()) // the next needs another
				}
			})
		}
		time.Sleep(time.Duration(delay) * 50 * time.Millisecond)
		require.NoError(t, k.Close(context.Background()))
		require.Zero(t, f.LeaseCount())
		callers.Wait()
		require.Zero(t, f.LeaseCount())
	})
}
