package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const epochKey = "!/epoch"

// creation creates key in the session's epoch.
func creation(s *session.Session, key string) link.Transaction {
	return link.Transaction{
		If:     []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then:   []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))},
		Epoch:  s.Link().Epoch(epochKey),
		Likely: true,
	}
}

// held keeps requests until they are released, also those whose callers have left.
func held(release <-chan struct{}) fate {
	return func(ctx context.Context, do func() error) error {
		done := make(chan error, 1)
		go func() {
			<-release
			done <- do()
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// R11, promise 8
func TestARequestOfAnEarlierEpochCreatesNothing(t *testing.T) {
	for _, silent := range []time.Duration{0, 10 * time.Second, 5 * time.Minute, 5 * time.Hour} {
		t.Run(silent.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				release := make(chan struct{})
				f.set(func(f *fake) { f.txn = held(release) })
				ctx, cancel := context.WithCancel(context.Background())
				_, wait := commits(ctx, s, creation(s, "key"))
				f.set(func(f *fake) { f.txn = nil })
				cancel()
				wait()
				freed := make(chan struct{})
				s.Link().Epoch(epochKey).Doubt("key", func() { close(freed) })
				<-freed
				requests := len(f.requests())
				time.Sleep(silent)
				require.Len(t, f.requests(), requests, "an ended doubt costs nothing")
				close(release)
				synctest.Wait()
				require.False(t, f.exists("key"))

				_, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
				require.NoError(t, err)
				require.True(t, f.exists("key"), "a later request does")
			})
		})
	}
}

func TestADoubtRemovesWhatHasBeenCreated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.put("key", s.Lease())
		f.put("theirs", s.Lease()+1)
		var freed atomic.Int64
		for _, key := range []string{"key", "theirs", "nothing"} {
			s.Link().Epoch(epochKey).Doubt(key, func() { freed.Add(1) })
		}
		synctest.Wait()
		require.EqualValues(t, 3, freed.Load())
		require.False(t, f.exists("key"))
		require.True(t, f.exists("theirs"))
		require.Zero(t, s.Link().Unsettled())
	})
}

// overtaken keeps a request back until it is released, whatever its client does meanwhile.
func overtaken(release <-chan struct{}) fate {
	return func(ctx context.Context, do func() error) error {
		go func() {
			<-release
			_ = do()
		}()
		<-ctx.Done()
		return ctx.Err()
	}
}

// When a doubt has ended its key may be created anew. What is left of its end must not remove that.
func TestALateRemovalLeavesANewerKeyAlone(t *testing.T) {
	for name, fates := range map[string][]fate{
		"of the end":  {answered, overtaken(nil)},
		"of a look":   {refused(rpctypes.ErrNoSpace), answered, overtaken(nil)},
		"of the next": {refused(rpctypes.ErrNoSpace), answered, answered, answered, overtaken(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				f.put("key", s.Lease())
				release := make(chan struct{})
				fates[len(fates)-1] = overtaken(release)
				var requests atomic.Int64
				f.set(func(f *fake) {
					f.txn = func(ctx context.Context, do func() error) error {
						if n := requests.Add(1); int(n) <= len(fates) {
							return fates[n-1](ctx, do)
						}
						return do()
					}
				})
				freed := make(chan struct{})
				s.Link().Epoch(epochKey).Doubt("key", func() { close(freed) })
				<-freed
				require.False(t, f.exists("key"))
				_, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
				require.NoError(t, err)
				require.True(t, f.exists("key"))
				close(release)
				synctest.Wait()
				require.True(t, f.exists("key"))
			})
		})
	}
}

// What doubts cost does not grow with what was tried, and ends.
func TestManyDoubtsEndInFewRequests(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(500 * time.Millisecond) })
		var freed atomic.Int64
		for n := range 200 {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", n), func() { freed.Add(1) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 200, freed.Load())
		require.LessOrEqual(t, len(f.requests()), 2+6)
		for _, r := range f.requests() {
			require.LessOrEqual(t, len(r.Success), 64)
		}
	})
}

func TestADoubtLastsUntilItsEndIsConfirmed(t *testing.T) {
	for name, trouble := range map[string]fate{
		"requests vanish":   lost,
		"answers vanish":    unheard,
		"too many requests": refused(rpctypes.ErrTooManyRequests),
		"no leader":         refused(rpctypes.ErrNoLeader),
		"no space":          refused(rpctypes.ErrNoSpace),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.txn = trouble
				s := open(t, f)
				f.put("key", s.Lease())
				var freed atomic.Bool
				s.Link().Epoch(epochKey).Doubt("key", func() { freed.Store(true) })
				time.Sleep(time.Minute)
				require.False(t, freed.Load())
				f.set(func(f *fake) { f.txn = nil })
				time.Sleep(30 * time.Second)
				require.True(t, freed.Load())
				require.False(t, f.exists("key"))
			})
		})
	}
}

// A user may be allowed to read and write the locks only.
func TestADeniedEpochMakesWayForTheNextKey(t *testing.T) {
	deny := func(r *etcdserverpb.TxnRequest) error {
		for _, op := range r.Success {
			if string(op.GetRequestRange().GetKey()) == epochKey || string(op.GetRequestPut().GetKey()) == epochKey {
				return rpctypes.ErrPermissionDenied
			}
		}
		return nil
	}
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.decide = deny
		s := open(t, f)
		first := s.Link().Epoch(epochKey, "second")
		require.True(t, first.Denies(context.Background()))
		second := s.Link().Epoch(epochKey, "second")
		require.NotSame(t, first, second)
		require.True(t, first.Denies(context.Background()), "a call that was refused at the same time makes way as well")
		require.False(t, second.Denies(context.Background()))
		freed := make(chan struct{})
		second.Doubt("key", func() { close(freed) })
		<-freed
		require.True(t, f.exists("second"))
	})
}

// R11: with no epoch to be had, the name is observed for as long as the session lasts.
func TestWithoutAnEpochANameIsObserved(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second, 5 * time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.decide = deniedEpoch(rpctypes.ErrPermissionDenied)
				s := open(t, f)
				s.Link().Epoch(epochKey).Doubt("key", func() { t.Error("confirmed what cannot be known") })
				time.Sleep(after)
				before := len(f.requests())
				time.Sleep(time.Minute)
				require.LessOrEqual(t, len(f.requests())-before, 40, "with growing pauses")
				f.put("key", s.Lease())
				time.Sleep(20 * time.Second)
				require.False(t, f.exists("key"))
				f.put("key", s.Lease()+1)
				time.Sleep(time.Minute)
				require.True(t, f.exists("key"), "somebody else's")
				require.Zero(t, s.Link().Unsettled(), "calls do not wait for what cannot end")
			})
		})
	}
}

// deniedEpoch refuses to write the epoch's key.
func deniedEpoch(err error) func(*etcdserverpb.TxnRequest) error {
	return func(r *etcdserverpb.TxnRequest) error {
		if string(r.Success[0].GetRequestPut().GetKey()) == epochKey {
			return err
		}
		return nil
	}
}

// What a name costs that is observed does not grow with each.
func TestNamesWithoutAnEpochAreObservedTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.decide = deniedEpoch(rpctypes.ErrPermissionDenied)
		s := open(t, f)
		const names = 1000
		for n := range names {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", n), func() { t.Error("confirmed what cannot be known") })
			time.Sleep(17 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		before := len(f.requests())
		const span = 10 * time.Minute
		time.Sleep(span)
		looks := (names + 63) / 64
		require.LessOrEqual(t, len(f.requests())-before, int(span/(10*time.Second))*looks*5/4)
		f.put("key7", s.Lease())
		time.Sleep(20 * time.Second)
		require.False(t, f.exists("key7"))
	})
}

// Etcd may be short of space, or corrupt, for hours.
func TestARefusedEpochIsTriedAgainSeldomAndCallsAreRefusedMeanwhile(t *testing.T) {
	for name, refusal := range map[string]error{"no space": rpctypes.ErrNoSpace, "corrupt": rpctypes.ErrCorrupt} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				log := &logbook{}
				s := open(t, f, session.WithLogger(slog.New(log)))
				f.set(func(f *fake) { f.decide = deniedEpoch(refusal) })
				var begun, freed atomic.Int64
				start := time.Now()
				for s.Link().Admit(context.Background()) == nil {
					s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", begun.Add(1)), func() { freed.Add(1) })
					time.Sleep(10 * time.Millisecond)
				}
				require.Equal(t, link.UnsettledLimit, s.Link().Unsettled())
				err := s.Link().Admit(context.Background())
				require.True(t, request.IsAnswer(err, refusal))
				require.False(t, request.Doubtful(err))
				require.Less(t, time.Since(start), 10*time.Second)
				time.Sleep(time.Minute)
				require.LessOrEqual(t, len(f.requests()), 60, "an epoch and two looks each time, after 1 s, 2 s, ... 10 s")
				require.LessOrEqual(t, len(log.warnings(t)), 20)
				f.put("key5", s.Lease()) // late
				f.set(func(f *fake) { f.decide = nil })
				time.Sleep(20 * time.Second)
				require.Equal(t, begun.Load(), freed.Load())
				require.Zero(t, s.Link().Unsettled())
				require.NoError(t, s.Link().Admit(context.Background()))
				f.set(func(f *fake) { require.NotContains(t, f.keys, "key5") })
			})
		})
	}
}

// A call that waits is not to wait for as long as the refusals last.
func TestACallThatWaitsForDoubtsToEndIsToldWhyTheyCannot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		for n := range link.UnsettledLimit {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", n), func() {})
		}
		waited := make(chan error, 1)
		go func() { waited <- s.Link().Admit(context.Background()) }()
		time.Sleep(time.Second)
		require.Empty(t, waited)
		f.set(func(f *fake) { f.txn = nil; f.decide = deniedEpoch(rpctypes.ErrNoSpace) })
		require.ErrorIs(t, <-waited, rpctypes.ErrNoSpace)
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, s.Link().Admit(context.Background()), session.ErrClosed)
	})
}

// That somebody deletes the epoch's key must not bring back an earlier epoch.
func TestADeletedEpochIsFollowedByANewOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		freed := make(chan struct{})
		e := s.Link().Epoch(epochKey)
		e.Doubt("key", func() { close(freed) })
		<-freed
		f.set(func(f *fake) { delete(f.keys, epochKey) })
		before := e.Now()
		answer, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
		require.NoError(t, err)
		require.False(t, answer.Succeeded)
		moved, err := e.Moved(context.Background(), before, &etcdserverpb.RangeResponse{})
		require.NoError(t, err)
		require.True(t, moved)
		answer, _, err = s.Link().Commit(context.Background(), creation(s, "key"))
		require.NoError(t, err)
		require.True(t, answer.Succeeded)
	})
}

// An answer that comes when the caller has left leaves no doubt.
func TestAnAnswerThatComesLateIsTold(t *testing.T) {
	for _, answered := range []time.Duration{300 * time.Millisecond, 2 * time.Second} {
		t.Run(answered.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				s.Link().ShareAll()
				f.set(func(f *fake) { f.txn = late(answered) })
				told := make(chan error, 1)
				mine := creation(s, "key")
				mine.Late = func(answer *clientv3.TxnResponse, _ int, err error) {
					if err == nil && !answer.Succeeded {
						t.Error("not created")
					}
					told <- err
				}
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				defer cancel()
				start := time.Now()
				_, doubts, err := s.Link().Commit(ctx, mine)
				require.Equal(t, 30*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, request.IsInFlight(err))
				require.True(t, request.Doubtful(err))
				require.Zero(t, doubts)
				require.Equal(t, 1, s.Link().Unsettled())
				err = <-told
				require.Equal(t, answered > time.Second, err != nil, "within a second")
				synctest.Wait()
				require.Zero(t, s.Link().Unsettled())
			})
		})
	}
}

// A late answer is about its own attempt. Those before it may have taken effect all the same.
func TestALateAnswerComesWithTheDoubtsBeforeIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		s.Link().ShareAll()
		var attempts atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		f.set(func(f *fake) {
			f.txn = func(attempt context.Context, do func() error) error {
				if attempts.Add(1) <= 2 {
					return lost(attempt, do)
				}
				cancel()
				return late(300*time.Millisecond)(attempt, do)
			}
		})
		told := make(chan int, 1)
		mine := creation(s, "key")
		mine.Late = func(_ *clientv3.TxnResponse, doubts int, _ error) { told <- doubts }
		_, doubts, err := s.Link().Commit(ctx, mine)
		require.True(t, request.IsInFlight(err))
		require.Equal(t, 2, doubts)
		require.Equal(t, 2, <-told)
	})
}

// Late may have been told by then, so the caller must not take care of the outcome as well.
func TestAnOutcomeThatIsLeftToLateStaysThereWhenTheSessionIsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		var suspended atomic.Int64
		s := open(t, f, session.WithClock(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		s.Link().ShareAll()
		f.set(func(f *fake) { f.txn = late(300 * time.Millisecond) })
		ctx, cancel := context.WithCancel(context.Background())
		mine := creation(s, "key")
		mine.Late = func(*clientv3.TxnResponse, int, error) {}
		results, wait := commits(ctx, s, mine)
		suspended.Store(int64(time.Hour))
		cancel()
		wait()
		require.ErrorIs(t, results[0].err, session.ErrLost)
		require.True(t, request.IsInFlight(results[0].err))
	})
}

// Calls that give up and are made again do not pile up.
func TestNoMoreIsBegunThanEtcdAnswers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(700 * time.Millisecond) })
		call := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			if err := s.Link().Admit(ctx); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, request.Doubtful(err))
				return err
			}
			mine := creation(s, fmt.Sprint("key", time.Now().UnixNano()))
			mine.Late = func(*clientv3.TxnResponse, int, error) {}
			_, _, err := s.Link().Commit(ctx, mine)
			return err
		}
		for range 400 {
			go func() {
				for range 1000 {
					_ = call()
				}
			}()
		}
		for range 50 {
			time.Sleep(500 * time.Millisecond)
			require.LessOrEqual(t, s.Link().Unsettled(), link.UnsettledLimit+400)
		}
		time.Sleep(10 * time.Second)
		require.Zero(t, s.Link().Unsettled())
		require.NoError(t, s.Link().Admit(context.Background()))
	})
}

// A shared request that is refused because of one of its transactions is made again. By then another may have been given
// up, and its name be free.
func TestARequestMadeAgainBelongsToTheEpochOfTheFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busy(f, s)
		release := make(chan struct{})
		f.set(func(f *fake) { f.txn = held(release) })
		ctx, cancel := context.WithCancel(context.Background())
		freed := make(chan struct{})
		mine := creation(s, "key")
		mine.Late = func(_ *clientv3.TxnResponse, _ int, err error) {
			require.Error(t, err)
			s.Link().Epoch(epochKey).Doubt("key", func() { close(freed) })
		}
		_, waitForAll := commits(ctx, s, mine, creation(s, "other"))
		wait()
		synctest.Wait()
		f.set(func(f *fake) { f.txn = nil })
		cancel()
		waitForAll()
		<-freed
		close(release)
		synctest.Wait()
		all := f.requests()
		require.Len(t, all[len(all)-1].Success, 2, "the shared request was made again")
		require.False(t, f.exists("key"))
	})
}

// What is in doubt while etcd does not answer at all is limited, however many calls give up.
func TestDoubtsThatCannotBeEndedYetAreFew(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		var begun, freed atomic.Int64
		end := time.Now().Add(time.Minute)
		const callers = 200
		for range callers {
			go func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
					if s.Link().Admit(ctx) == nil {
						key := fmt.Sprint("key", begun.Add(1))
						mine := creation(s, key)
						mine.Late = func(*clientv3.TxnResponse, int, error) {
							s.Link().Epoch(epochKey).Doubt(key, func() { freed.Add(1) })
						}
						_, _, err := s.Link().Commit(ctx, mine)
						if !request.IsInFlight(err) {
							freed.Add(1) // it was never sent
						}
					}
					cancel()
				}
			}()
		}
		time.Sleep(time.Minute)
		require.LessOrEqual(t, begun.Load()-freed.Load(), int64(link.UnsettledLimit+callers))
		f.set(func(f *fake) { f.txn = nil })
		time.Sleep(time.Minute)
		require.Equal(t, begun.Load(), freed.Load())
		require.Zero(t, s.Link().Unsettled())
		require.NoError(t, s.Link().Admit(context.Background()))
	})
}

// The table must not grow with the number of queues ever used.
func TestEpochsThatAreForgottenAreFoundAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.put("other", s.Lease())
		freed := make(chan struct{})
		first := s.Link().Epoch(epochKey)
		first.Doubt("key", func() { close(freed) })
		<-freed
		for n := range 10_000 {
			s.Link().Epoch(fmt.Sprint("queue", n, epochKey))
		}
		require.LessOrEqual(t, s.Link().Epochs(), 1024)
		again := s.Link().Epoch(epochKey)
		require.NotSame(t, first, again)
		freed = make(chan struct{})
		again.Doubt("other", func() { close(freed) })
		<-freed
		require.False(t, f.exists("other"))
		require.Equal(t, first.Now(), again.Now(), "what the second one has sent belonged to no epoch of the first")
	})
}
