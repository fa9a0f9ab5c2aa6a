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

func TestLeaseThatComesTooLateForItsCallerServesTheNext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = late(300 * time.Millisecond)
		k := keep(t, f)
		var failed int
		for range 20 {
			if _, err := ask(k, 200*time.Millisecond); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				failed++
			}
		}
		require.Equal(t, 1, failed)
		require.Len(t, f.GrantTimes(), 1)
		require.Equal(t, 1, f.LeaseCount())
	})
}

// The lease began when the request left, however late the caller came that uses it.
func TestLeaseThatCameLateIsTrustedFromBeforeItsRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = late(2 * time.Second)
		k := keep(t, f)
		start := time.Now()
		_, err := ask(k, 200*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		s, err := k.Session(context.Background())
		require.NoError(t, err)
		require.Equal(t, start.Add(13500*time.Millisecond), s.Deadline())
		require.Len(t, f.GrantTimes(), 1)
	})
}

// A caller that has given up does not shorten the time in which etcd may answer, nor do others prolong
// it for ever.
func TestCreationOfASessionOutlivesItsLastCallerByTenSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = lost
		k := keep(t, f)
		start := time.Now()
		_, err := ask(k, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		// Attempts of 3 s, 6 s and 12 s.
		require.Equal(t, []float64{0, 3, 9}, secondsSince(start, f.GrantTimes()))

		f.Set(func(f *fake) { f.OnGrant = nil })
		_, err = ask(k, time.Second)
		require.NoError(t, err)
	})
}

func TestCallerThatComesBackProlongsTheCreationOfASession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = late(8 * time.Second) // the third attempt has 12 s
		k := keep(t, f)
		start := time.Now()
		for time.Since(start) < 16*time.Second {
			_, err := ask(k, time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Second)
		}
		_, err := ask(k, 2*time.Second)
		require.NoError(t, err)
		require.Equal(t, 17*time.Second, time.Since(start))
		require.Equal(t, []float64{0, 3, 9}, secondsSince(start, f.GrantTimes()))
	})
}

func TestCloseOfAKeeperEndsTheCreationOfItsSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = refused(rpctypes.ErrNoLeader)
		k := keep(t, f)
		var caller sync.WaitGroup
		start := time.Now()
		caller.Go(func() {
			_, err := ask(k, time.Hour)
			if time.Since(start) != time.Minute {
				t.Error("Close was not told to a caller that waited")
			}
			if !errors.Is(err, session.ErrClosed) {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		require.NoError(t, k.Close(context.Background()))
		caller.Wait()
		attempts := len(f.GrantTimes())
		time.Sleep(time.Hour)
		require.Len(t, f.GrantTimes(), attempts)
	})
}

func TestLeaseThatComesAfterCloseIsRevoked(t *testing.T) {
	for name, wait := range map[string]time.Duration{"while Close waits": time.Second, "after that": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.OnGrant = late(500 * time.Millisecond)
				k := keep(t, f)
				var patient sync.WaitGroup
				patient.Go(func() {
					if _, err := ask(k, time.Minute); !errors.Is(err, session.ErrClosed) {
						t.Error(err)
					}
				})
				_, err := ask(k, 50*time.Millisecond)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				defer cancel()
				err = k.Close(ctx)
				patient.Wait()
				if wait > 500*time.Millisecond {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					time.Sleep(500 * time.Millisecond)
					synctest.Wait()
				}
				require.Len(t, f.RevocationTimes(), 1)
				require.Zero(t, f.LeaseCount())
			})
		})
	}
}

// The lease of a session that Close could not wait for is not renewed.
func TestCloseThatGivesUpLeavesNothingThatRenews(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant, f.OnRevoke = late(500*time.Millisecond), lost
		k := keep(t, f)
		_, err := ask(k, 50*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, k.Close(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Empty(t, f.RenewalTimes())
		f.Set(func(f *fake) { f.OnRevoke = nil })
		require.NoError(t, k.Close(context.Background()), "it tries again")
		require.Zero(t, f.LeaseCount())
	})
}

// A server that does not answer is not waited for as long as it would be otherwise.
func TestCloseGivesALeaseThatIsBeingGrantedThreeSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = lost
		k := keep(t, f)
		_, err := ask(k, 10*time.Second) // the attempt under way has 12 s
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, k.Close(context.Background()))
		require.Equal(t, 3*time.Second, time.Since(start))
		f.Set(func(f *fake) { require.Len(t, f.Grants, 3) })
	})
}

func TestCallerOfAKeeperIsToldWhatTheLastAttemptMetWith(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = refused(rpctypes.ErrNoLeader)
		k := keep(t, f)
		for range 2 { // the second joins a creation that goes on
			_, err := ask(k, time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, rpctypes.ErrNoLeader)
		}
	})
}

// Callers that come and go while the answers are slow, and a keeper that is closed in the midst of it.
func TestKeeperLeavesNoLeaseWhateverTheMoment(t *testing.T) {
	for delay := range 12 {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.OnGrant = late(time.Duration(delay%4) * 100 * time.Millisecond)
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
}
