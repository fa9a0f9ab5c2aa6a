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

	"github.com/etcdlock/locks/session"
)

func TestIdleSessionRenewsOncePerThirdOfItsTTL(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		s := open(t, f, session.WithTTL(15*time.Second))
		time.Sleep(26 * time.Second)
		require.Equal(t, []float64{5, 10, 15, 20, 25}, secondsSince(start, f.RenewalTimes()))
		require.NoError(t, s.Err())
		require.Equal(t, start.Add(25*time.Second+13500*time.Millisecond), s.Deadline())
	})
}

// The connection is black-holed after two renewals.
func TestLossIsToldBeforeTheServerDropsTheLease(t *testing.T) {
	for name, hole := range map[string]fate{"requests vanish": lost, "answers vanish": unheard} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				start := time.Now()
				s := open(t, f, session.WithTTL(15*time.Second))
				time.Sleep(11 * time.Second)
				f.Set(func(f *fake) { f.OnRenew = hole })
				deadline := s.Deadline()
				<-s.Done()
				require.Equal(t, deadline, time.Now(), "not before it has to, and not later")
				require.Equal(t, start.Add(23500*time.Millisecond), deadline)
				require.True(t, time.Now().Before(f.Expiry(s.Lease())))
				require.ErrorIs(t, s.Err(), session.ErrLost)
				require.ErrorIs(t, context.Cause(s.Context()), session.ErrLost)
				require.Equal(t, session.Lost, s.State())
			})
		})
	}
}

// Whatever becomes of the single renewals.
func TestSessionNeverOutlivesItsLease(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				f.OnRenew = func(ctx context.Context, do func() error) error {
					mu.Lock()
					kind, delay := random.IntN(6), time.Duration(random.Int64N(int64(8*time.Second)))
					mu.Unlock()
					switch kind {
					case 0:
						return answered(ctx, do)
					case 1:
						return unheard(ctx, do)
					case 2:
						return late(delay)(ctx, do)
					case 3:
						return refused(rpctypes.ErrNoLeader)(ctx, do)
					}
					return lost(ctx, do)
				}
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
		f.Set(func(f *fake) { f.OnRenew = late(5 * time.Second) })
		time.Sleep(26 * time.Second) // the renewal left at 20 s and was answered at 25 s
		f.Set(func(f *fake) { f.OnRenew = lost })
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
		f.Set(func(f *fake) { f.OnRenew = late(900 * time.Millisecond) })
		var slow sync.WaitGroup
		slow.Go(func() { _ = s.Renew(context.Background()) })
		time.Sleep(100 * time.Millisecond)
		f.Set(func(f *fake) { f.OnRenew = nil })
		require.NoError(t, s.Renew(context.Background()))
		deadline := s.Deadline()
		slow.Wait()
		require.Equal(t, deadline, s.Deadline())
	})
}

// The grant is answered late, then comes a black hole.
func TestDeadlineCountsFromBeforeTheGrantWasSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant, f.OnRenew = late(3500*time.Millisecond), lost
		s := open(t, f, session.WithTTL(15*time.Second))
		grants := f.GrantTimes()
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
		f.OnGrant = late(3500 * time.Millisecond)
		start := time.Now()
		s := open(t, f, session.WithTTL(6*time.Second))
		created := time.Since(start)
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, created, f.RenewalTimes()[0].Sub(start))
	})
}

// Every caller gets a session that can be used.
func TestALeaseThatIsOverWhenItsGrantIsAnsweredIsNotOffered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = func(ctx context.Context, do func() error) error {
			f.Set(func(f *fake) { f.OnGrant = nil })
			return late(2500*time.Millisecond)(ctx, do)
		}
		s := open(t, f, session.WithTTL(2*time.Second))
		require.NoError(t, s.Err())
		require.Len(t, f.GrantTimes(), 2)
	})
}

// No answer for 4 s right after the grant, with a TTL of 60 s.
func TestSessionSurvivesSilenceRightAfterTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnRenew = lost
		s := open(t, f, session.WithTTL(60*time.Second))
		heal := time.AfterFunc(4*time.Second, func() { f.Set(func(f *fake) { f.OnRenew = nil }) })
		defer heal.Stop()
		require.NoError(t, s.Renew(context.Background()))
		time.Sleep(5 * time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, session.Live, s.State())
	})
}

// One of three endpoints swallows what it gets, then two; the others take their time.
func TestSessionSurvivesSilentEndpoints(t *testing.T) {
	for silent, late := range []fate{late(0), late(700 * time.Millisecond), late(500 * time.Millisecond)} {
		for _, ttl := range []time.Duration{2 * time.Second, 15 * time.Second} {
			t.Run(fmt.Sprint(silent, ttl), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					var n atomic.Int64
					f.OnRenew = func(ctx context.Context, do func() error) error {
						if int(n.Add(1))%3 < silent {
							return lost(ctx, do)
						}
						return late(ctx, do)
					}
					s := open(t, f, session.WithTTL(ttl))
					time.Sleep(10 * time.Minute)
					require.NoError(t, s.Err())
				})
			})
		}
	}
}

// A silent connection breaks late, and with it all attempts that were under way on it.
func TestAttemptsThatFailTogetherDoNotPutOffTheNext(t *testing.T) {
	for range 20 {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			broken := make(chan struct{})
			f.OnRenew = func(ctx context.Context, do func() error) error {
				select {
				case <-broken:
					return do()
				default:
				}
				select {
				case <-broken:
					return rpctypes.ErrStopped
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s := open(t, f, session.WithTTL(15*time.Second))
			time.Sleep(13 * time.Second) // half a second before the deadline
			close(broken)
			time.Sleep(time.Minute)
			require.NoError(t, s.Err())
		})
	}
}

// The client of etcd itself copes with that, since it asks again without giving up what it asked.
func TestSessionSurvivesRoundTripsOfNearlyHalfItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second, time.Minute} {
		for _, part := range []int64{10, 15, 30, 45} {
			t.Run(fmt.Sprintf("%d %% of %v", part, ttl), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					f.OnRenew = late(time.Duration(int64(ttl) * part / 100))
					s := open(t, f, session.WithTTL(ttl))
					time.Sleep(10 * time.Minute)
					require.NoError(t, s.Err())
					f.Set(func(f *fake) { require.LessOrEqual(t, f.InFlight, 20) })
				})
			})
		}
	}
}

func TestDoneDoesNotDependOnTheRequestComingBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		release := make(chan struct{})
		s := open(t, f, session.WithTTL(15*time.Second))
		f.Set(func(f *fake) { f.OnRenew = deaf(release) })
		deadline := s.Deadline()
		<-s.Done()
		require.Equal(t, deadline, time.Now())
		close(release)
	})
}

func TestStateFollowsTheRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(12*time.Second))
		require.Equal(t, session.Live, s.State())
		f.Set(func(f *fake) { f.OnRenew = lost })

		time.Sleep(6 * time.Second)
		require.Equal(t, session.Live, s.State(), "the first attempt is not overdue yet")
		time.Sleep(time.Millisecond)
		require.Equal(t, session.AtRisk, s.State())
		require.NoError(t, s.Err())
		require.False(t, ended(s))

		f.Set(func(f *fake) { f.OnRenew = nil })
		time.Sleep(2 * time.Second) // the attempt under way times out, the next is answered
		require.Equal(t, session.Live, s.State())

		f.Set(func(f *fake) { f.OnRenew = lost })
		time.Sleep(s.TTL())
		require.Equal(t, session.Lost, s.State())
		require.True(t, ended(s))

		f.Set(func(f *fake) { f.OnRenew = nil })
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
	looks := map[string]func(t *testing.T, s *session.Session){
		"Err": func(t *testing.T, s *session.Session) { require.ErrorIs(t, s.Err(), session.ErrLost) },
		"State": func(t *testing.T, s *session.Session) {
			require.Equal(t, session.Lost, s.State())
		},
		"Session": func(t *testing.T, s *session.Session) {
			_, err := s.Session(context.Background())
			require.ErrorIs(t, err, session.ErrLost)
		},
		"Renew": func(t *testing.T, s *session.Session) {
			require.ErrorIs(t, s.Renew(context.Background()), session.ErrLost)
		},
		"Call": func(t *testing.T, s *session.Session) {
			err := s.Link().Call(context.Background(), func(context.Context) error {
				t.Error("a request was made")
				return nil
			})
			require.ErrorIs(t, err, session.ErrLost)
		},
		"Close": func(t *testing.T, s *session.Session) {
			require.NoError(t, s.Close(context.Background()))
			require.ErrorIs(t, s.Err(), session.ErrLost, "a loss stays a loss")
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				now, suspend := suspendable()
				s := open(t, f, session.WithTTL(15*time.Second), session.WithClock(now))
				synctest.Wait() // the goroutine that renews waits for its turn
				suspend(13500*time.Millisecond - 1)
				require.NoError(t, s.Err())
				require.False(t, ended(s))
				suspend(1)
				look(t, s)
				require.True(t, ended(s))
				require.Empty(t, f.RenewalTimes())
			})
		})
	}
}

// The answer is read after waking up, before any timer went off.
func TestAnswerAfterTheDeadlineDoesNotReviveTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		now, suspend := suspendable()
		s := open(t, f, session.WithTTL(15*time.Second), session.WithClock(now))
		time.Sleep(4 * time.Second)
		// The server sees the renewal in time, and answers in time.
		f.Set(func(f *fake) {
			f.OnRenew = func(ctx context.Context, do func() error) error {
				defer suspend(10 * time.Second)
				return answered(ctx, do)
			}
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
		require.Equal(t, []float64{3, 8, 13}, secondsSince(start, f.RenewalTimes()))
	})
}

func TestRenewTriesAgainUntilItsContextEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Minute))
		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := s.Renew(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, rpctypes.ErrNoLeader, "and says what was in the way")
		require.Greater(t, len(f.RenewalTimes()), 2)
		require.NoError(t, s.Err())
	})
}

// A server that refuses at once must not be asked in a tight loop.
func TestFailingRenewalsArePaced(t *testing.T) {
	for _, err := range []error{rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied, errors.New("odd")} {
		t.Run(err.Error(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.OnRenew = refused(err)
				s := open(t, f, session.WithTTL(15*time.Second))
				<-s.Done()
				attempts := len(f.RenewalTimes())
				require.Greater(t, attempts, 5)
				require.Less(t, attempts, 40)
			})
		})
	}
}

func TestTheServersTTLCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.MinTTL = 9
		start := time.Now()
		s := open(t, f, session.WithTTL(time.Second))
		require.Equal(t, 9*time.Second, s.TTL())
		require.Equal(t, start.Add(8100*time.Millisecond), s.Deadline())
		time.Sleep(4 * time.Second)
		require.Equal(t, []float64{3}, secondsSince(start, f.RenewalTimes()))
	})
}

// The balancer's turn is shared with the client's other requests, so any attempt may
// meet the silent endpoint. What helps is that there are many.
func TestManyAttemptsFitBeforeTheDeadline(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 15 * time.Second, 5 * time.Minute} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f, session.WithTTL(ttl))
			var attempts atomic.Int64
			f.Set(func(f *fake) {
				f.OnRenew = func(ctx context.Context, _ func() error) error {
					attempts.Add(1)
					<-ctx.Done()
					return ctx.Err()
				}
			})
			<-s.Done()
			require.GreaterOrEqual(t, attempts.Load(), int64(8), ttl)
			require.LessOrEqual(t, attempts.Load(), int64(20), ttl)
		})
	}
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

// An operator revokes the lease.
func TestAnUnknownLeaseEndsTheSession(t *testing.T) {
	revoke := func(f *fake) { clear(f.Alive) }
	for name, test := range map[string]struct {
		change func(f *fake)
		notice func(s *session.Session) error
	}{
		"periodic renewal": {revoke, func(s *session.Session) error { <-s.Done(); return s.Err() }},
		"Renew":            {revoke, func(s *session.Session) error { return s.Renew(context.Background()) }},
		"any request": {revoke, func(s *session.Session) error {
			return s.Link().Call(context.Background(), func(context.Context) error { return rpctypes.ErrLeaseNotFound })
		}},
		"a TTL of zero": {func(f *fake) { f.Granted = 0 }, func(s *session.Session) error { return s.Renew(context.Background()) }},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				start := time.Now()
				s := open(t, f, session.WithTTL(15*time.Second))
				f.Set(test.change)
				err := test.notice(s)
				require.LessOrEqual(t, time.Since(start), 5*time.Second)
				require.True(t, ended(s))
				require.ErrorIs(t, s.Err(), session.ErrLost)
				require.ErrorIs(t, s.Err(), rpctypes.ErrLeaseNotFound)
				require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
				renewals := f.RenewalTimes()
				time.Sleep(time.Minute)
				require.Equal(t, renewals, f.RenewalTimes(), "a lost session is not renewed")
			})
		})
	}
}
