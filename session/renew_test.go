package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

func TestIdleSessionRenewsOncePerThirdOfItsTTL(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		s := open(t, f, session.WithTTL(15*time.Second))
		time.Sleep(26 * time.Second)
		require.Equal(t, []float64{5, 10, 15, 20, 25}, secondsSince(start, f.Renewals.Times()))
		require.NoError(t, s.Err())
		require.Equal(t, start.Add(25*time.Second+13500*time.Millisecond), s.Deadline())
	})
}

// The connection is black-holed after two renewals.
func TestLossIsToldBeforeTheServerDropsTheLease(t *testing.T) {
	holes := map[string]fate{"requests vanish": lost, "answers vanish": unheard, "requests never return": deaf}
	inEach(t, holes, func(t *testing.T, f *fake, hole fate) {
		start := time.Now()
		s := open(t, f, session.WithTTL(15*time.Second))
		time.Sleep(11 * time.Second)
		f.Renewals.Meet(hole)
		deadline := s.Deadline()
		<-s.Done()
		require.Equal(t, deadline, time.Now(), "not before it has to, and not later")
		require.Equal(t, start.Add(23500*time.Millisecond), deadline)
		require.True(t, time.Now().Before(f.Expiry(s.Lease())))
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorIs(t, context.Cause(s.Context()), session.ErrLost)
		require.Equal(t, session.Lost, s.State())
	})
}

// Whatever becomes of the single renewals.
func TestSessionNeverOutlivesItsLease(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				f.Renewals.Meet(func(ctx context.Context, do func() error) error {
					mu.Lock()
					kind, delay := random.IntN(6), time.Duration(random.Int64N(int64(8*time.Second)))
					mu.Unlock()
					fates := []fate{answered, unheard, late(delay), refused(rpctypes.ErrNoLeader), lost, lost}
					return fates[kind](ctx, do)
				})
				s := open(t, f, session.WithTTL(time.Duration(2+random.IntN(58))*time.Second))
				select {
				case <-s.Done():
					require.ErrorIs(t, s.Err(), session.ErrLost)
				case <-time.After(10 * time.Minute):
				}
				require.True(t, time.Now().Before(f.Expiry(s.Lease())))
			})
		})
	}
}

// A renewal is answered 5 s late, then comes a black hole.
func TestLateAnswerDoesNotStretchTheDeadline(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		s := open(t, f, session.WithTTL(60*time.Second))
		f.Renewals.Meet(late(5 * time.Second))
		time.Sleep(26 * time.Second) // the renewal left at 20 s and was answered at 25 s
		f.Renewals.Meet(lost)
		require.Equal(t, start.Add((20+60-6)*time.Second), s.Deadline())
		<-s.Done()
		require.Equal(t, start.Add((20+60-6)*time.Second), time.Now())
		require.True(t, time.Now().Before(f.Expiry(s.Lease())))
	})
}

// Answers overtake each other.
func TestDeadlineNeverMovesBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.Renewals.Meet(late(900 * time.Millisecond))
		var slow sync.WaitGroup
		slow.Go(func() { _ = s.Renew(context.Background()) })
		time.Sleep(100 * time.Millisecond)
		f.Renewals.Meet(answered)
		require.NoError(t, s.Renew(context.Background()))
		deadline := s.Deadline()
		slow.Wait()
		require.Equal(t, deadline, s.Deadline())
	})
}

// The grant is answered late, then comes a black hole.
func TestDeadlineCountsFromBeforeTheGrantWasSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(3500 * time.Millisecond))
		f.Renewals.Meet(lost)
		s := open(t, f, session.WithTTL(15*time.Second))
		grants := f.Grants.Times()
		sent := grants[len(grants)-1]
		require.Equal(t, 3500*time.Millisecond, time.Since(sent))
		require.Equal(t, sent.Add(13500*time.Millisecond), s.Deadline())
		<-s.Done()
		require.Equal(t, sent.Add(13500*time.Millisecond), time.Now())
		require.True(t, time.Now().Before(f.Expiry(s.Lease())))
	})
}

// With a short TTL a slow grant uses up most of it.
func TestFirstRenewalDoesNotWaitAfterASlowGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(late(3500 * time.Millisecond))
		s := open(t, f, session.WithTTL(6*time.Second))
		created := time.Now()
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, created, f.Renewals.Times()[0])
	})
}

// Every caller gets a session that can be used.
func TestALeaseThatIsOverWhenItsGrantIsAnsweredIsNotOffered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(func(ctx context.Context, do func() error) error {
			f.Grants.Meet(answered)
			return late(2500*time.Millisecond)(ctx, do)
		})
		s := open(t, f, session.WithTTL(2*time.Second))
		require.NoError(t, s.Err())
		require.Len(t, f.Grants.Times(), 2)
	})
}

// One of three endpoints swallows what it gets, then two; the others take their time.
func TestSessionSurvivesSilentEndpoints(t *testing.T) {
	for silent, late := range []fate{late(0), late(700 * time.Millisecond), late(500 * time.Millisecond)} {
		inEach(t, named(2*time.Second, 15*time.Second), func(t *testing.T, f *fake, ttl time.Duration) {
			var n atomic.Int64
			f.Renewals.Meet(func(ctx context.Context, do func() error) error {
				if int(n.Add(1))%3 < silent {
					return lost(ctx, do)
				}
				return late(ctx, do)
			})
			s := open(t, f, session.WithTTL(ttl))
			time.Sleep(10 * time.Minute)
			require.NoError(t, s.Err())
		})
	}
}

// A silent connection breaks late, and with it all attempts that were under way on it.
func TestAttemptsThatFailTogetherDoNotPutOffTheNext(t *testing.T) {
	for range 20 {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			broken := make(chan struct{})
			f.Renewals.Meet(func(ctx context.Context, _ func() error) error {
				select {
				case <-broken:
					return rpctypes.ErrStopped
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			s := open(t, f, session.WithTTL(15*time.Second))
			time.Sleep(13 * time.Second) // half a second before the deadline
			f.Renewals.Meet(answered)
			close(broken)
			time.Sleep(time.Minute)
			require.NoError(t, s.Err())
		})
	}
}

// The client of etcd itself copes with that, since it asks again without giving up what it asked.
func TestSessionSurvivesRoundTripsOfNearlyHalfItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second, time.Minute} {
		inEach(t, named[int64](10, 15, 30, 45), func(t *testing.T, f *fake, percent int64) {
			f.Renewals.Meet(late(time.Duration(int64(ttl) * percent / 100)))
			s := open(t, f, session.WithTTL(ttl))
			time.Sleep(10 * time.Minute)
			require.NoError(t, s.Err())
			require.LessOrEqual(t, f.Renewals.InFlight(), 20)
		})
	}
}

func TestStateFollowsTheRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(12*time.Second))
		require.Equal(t, session.Live, s.State())

		f.Renewals.Meet(lost)
		time.Sleep(6 * time.Second)
		require.Equal(t, session.Live, s.State(), "the first attempt is not overdue yet")
		time.Sleep(time.Millisecond)
		require.Equal(t, session.AtRisk, s.State())
		require.NoError(t, s.Err())
		require.False(t, ended(s))

		f.Renewals.Meet(answered)
		time.Sleep(2 * time.Second) // the attempt under way times out, the next is answered
		require.Equal(t, session.Live, s.State())

		f.Renewals.Meet(lost)
		time.Sleep(s.TTL())
		require.Equal(t, session.Lost, s.State())
		require.True(t, ended(s))

		f.Renewals.Meet(answered)
		time.Sleep(time.Minute)
		require.Equal(t, session.Lost, s.State(), "for ever")
	})
}

func TestStatesHaveNames(t *testing.T) {
	names := map[session.State]string{
		session.Live: "live", session.AtRisk: "at risk", session.Lost: "lost", session.Closed: "closed", 0: "unknown",
	}
	for state, name := range names {
		require.Equal(t, name, state.String())
	}
}

// suspendable is a clock that can jump, as that of a suspended machine does: the
// timers have not seen it.
func suspendable() (now func() time.Duration, suspend func(time.Duration)) {
	start := time.Now()
	var jumped atomic.Int64
	now = func() time.Duration { return time.Since(start) + time.Duration(jumped.Load()) }
	return now, func(d time.Duration) { jumped.Add(int64(d)) }
}

// The process was stopped for longer than its TTL.
func TestFirstLookAfterASuspensionSeesTheLoss(t *testing.T) {
	inEach(t, map[string]func(s *session.Session) error{
		"Err": (*session.Session).Err,
		"State": func(s *session.Session) error {
			return map[session.State]error{session.Lost: session.ErrLost}[s.State()]
		},
		"Session": func(s *session.Session) error { _, err := s.Session(context.Background()); return err },
		"Renew":   func(s *session.Session) error { return s.Renew(context.Background()) },
		"Call": func(s *session.Session) error {
			return s.Link().Call(context.Background(), func(context.Context) error { panic("a request was made") })
		},
		"Close": func(s *session.Session) error { _ = s.Close(context.Background()); return s.Err() }, // a loss stays a loss
	}, func(t *testing.T, f *fake, look func(*session.Session) error) {
		now, suspend := suspendable()
		s := open(t, f, session.WithTTL(15*time.Second), session.WithClock(now))
		synctest.Wait() // the goroutine that renews waits for its turn
		suspend(13500*time.Millisecond - 1)
		require.NoError(t, s.Err())
		require.False(t, ended(s))
		suspend(1)
		require.ErrorIs(t, look(s), session.ErrLost)
		require.True(t, ended(s))
		require.Empty(t, f.Renewals.Times())
	})
}

// The answer is read after waking up, before any timer went off.
func TestAnswerAfterTheDeadlineDoesNotReviveTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		now, suspend := suspendable()
		s := open(t, f, session.WithTTL(15*time.Second), session.WithClock(now))
		time.Sleep(4 * time.Second)
		f.Renewals.Meet(func(_ context.Context, do func() error) error { // the server sees it in time, and answers in time
			defer suspend(10 * time.Second)
			return do()
		})
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrLost)
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.True(t, ended(s))
	})
}

func TestRenewMovesTheDeadlineAndTheNextPeriodicRenewal(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		s := open(t, f, session.WithTTL(15*time.Second))
		time.Sleep(3 * time.Second)
		require.NoError(t, s.Renew(context.Background()))
		require.Equal(t, start.Add(16500*time.Millisecond), s.Deadline())
		time.Sleep(11 * time.Second)
		require.Equal(t, []float64{3, 8, 13}, secondsSince(start, f.Renewals.Times()))
	})
}

func TestRenewTriesAgainUntilItsContextEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Minute))
		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := s.Renew(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, rpctypes.ErrNoLeader, "and says what was in the way")
		require.Greater(t, len(f.Renewals.Times()), 2)
		require.NoError(t, s.Err())
	})
}

// The balancer's turn is shared with the client's other requests, so any attempt may meet the silent endpoint. What
// helps is that there are many. But a server that refuses at once must not be asked in a tight loop.
func TestManyAttemptsFitBeforeTheDeadlineButNotTooMany(t *testing.T) {
	type test struct {
		ttl  time.Duration
		meet fate
		most int
	}
	inEach(t, map[string]test{
		"short silence":     {2 * time.Second, lost, 20},
		"silence":           {15 * time.Second, lost, 20},
		"long silence":      {5 * time.Minute, lost, 20},
		"no leader":         {15 * time.Second, refused(rpctypes.ErrNoLeader), 40},
		"too many requests": {15 * time.Second, refused(rpctypes.ErrTooManyRequests), 40},
		"permission denied": {15 * time.Second, refused(rpctypes.ErrPermissionDenied), 40},
		"an odd answer":     {15 * time.Second, refused(errors.New("odd")), 40},
	}, func(t *testing.T, f *fake, test test) {
		s := open(t, f, session.WithTTL(test.ttl))
		f.Renewals.Meet(test.meet)
		<-s.Done()
		attempts := len(f.Renewals.Times())
		require.GreaterOrEqual(t, attempts, 8)
		require.LessOrEqual(t, attempts, test.most)
	})
}

func TestAnIdleSessionIsOneGoroutine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		before := runtime.NumGoroutine()
		for range 100 {
			open(t, f)
		}
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+100)
	})
}

func TestAnUnknownLeaseEndsTheSession(t *testing.T) {
	type test struct {
		change func(f *fake)
		notice func(s *session.Session) error
	}
	renew := func(s *session.Session) error { return s.Renew(context.Background()) }
	inEach(t, map[string]test{
		"periodic renewal": {(*fake).Forget, func(s *session.Session) error { <-s.Done(); return s.Err() }},
		"Renew":            {(*fake).Forget, renew},
		"any request": {(*fake).Forget, func(s *session.Session) error {
			return s.Link().Call(context.Background(), func(context.Context) error { return rpctypes.ErrLeaseNotFound })
		}},
		"a TTL of zero": {(*fake).AnswerNoTTL, renew},
	}, func(t *testing.T, f *fake, test test) {
		start := time.Now()
		s := open(t, f, session.WithTTL(15*time.Second))
		test.change(f)
		err := test.notice(s)
		require.LessOrEqual(t, time.Since(start), 5*time.Second)
		require.True(t, ended(s))
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorIs(t, s.Err(), rpctypes.ErrLeaseNotFound)
		require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
		require.False(t, request.Doubtful(err), "nothing was written and nothing will be")
		renewals := f.Renewals.Times()
		time.Sleep(time.Minute)
		require.Equal(t, renewals, f.Renewals.Times(), "a lost session is not renewed")
	})
}
