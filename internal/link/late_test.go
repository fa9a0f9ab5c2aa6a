package link_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// shared commits t while requests are in flight that take 10 ms. Those that follow have the fate next.
func shared(ctx context.Context, t *testing.T, f *line, s *session.Session, next fate, mine link.Transaction) (result *committing, wait func()) {
	f.Set(func(f *line) { f.OnTxn = late(10 * time.Millisecond) })
	waitForOthers := busy(t, f, s)
	results, wait := commits(ctx, s, mine)
	f.Set(func(f *line) { f.OnTxn = next })
	waitForOthers()
	return results[0], wait
}

// An answer that comes when the caller has given up leaves no doubt.
func TestALateAnswerIsDeliveredOnce(t *testing.T) {
	for _, answered := range []time.Duration{300 * time.Millisecond, 2 * time.Second, time.Hour} {
		t.Run(answered.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				s := open(t, f)
				start := time.Now()
				delivered := make(chan error, 2)
				mine := creation(s, "key")
				mine.Late = func(answer *clientv3.TxnResponse, err error) {
					if err == nil && !answer.Succeeded {
						t.Error("not created")
					}
					delivered <- err
				}
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				defer cancel()
				result, wait := shared(ctx, t, f, s, late(answered), mine)
				wait()
				require.Equal(t, 30*time.Millisecond, time.Since(start))
				require.ErrorIs(t, result.err, context.DeadlineExceeded)
				require.True(t, request.IsInFlight(result.err))
				require.True(t, request.Doubtful(result.err))
				require.Zero(t, result.doubts)
				require.Equal(t, 1, s.Link().Abandoned())
				err := <-delivered
				require.Equal(t, answered > 3*time.Second, request.Doubtful(err), "within the time of an attempt")
				synctest.Wait()
				require.Zero(t, s.Link().Abandoned())
				time.Sleep(time.Minute)
				require.Empty(t, delivered)
			})
		})
	}
}

// Late gets the outcome of one attempt. Those before it may have taken effect all the same.
func TestARetryAfterAnUnansweredAttemptIsNotLeftToLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		mine := creation(s, "key")
		mine.Late = func(*clientv3.TxnResponse, error) { t.Error("called") }
		result, wait := shared(ctx, t, f, s, lost, mine)
		wait()
		require.False(t, request.IsInFlight(result.err))
		require.Equal(t, 2, result.doubts)
	})
}

// Late may have been called by then, so the caller must not take care of the outcome as well.
func TestAnOutcomeThatIsLeftToLateStaysThereWhenTheSessionIsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		start := time.Now()
		var suspended atomic.Int64
		s := open(t, f, session.WithClock(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		ctx, cancel := context.WithCancel(context.Background())
		mine := creation(s, "key")
		mine.Late = func(*clientv3.TxnResponse, error) {}
		result, wait := shared(ctx, t, f, s, late(300*time.Millisecond), mine)
		synctest.Wait()
		suspended.Store(int64(time.Hour))
		cancel()
		wait()
		require.ErrorIs(t, result.err, session.ErrLost)
		require.True(t, request.IsInFlight(result.err))
	})
}

// By then a transaction of a request that was held up may have been given up, and its name be free.
func TestASharedRequestOfAnEarlierEpochCreatesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.Set(func(f *line) { f.OnTxn = late(10 * time.Millisecond) })
		wait := busy(t, f, s)
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		mine, other := creation(s, "mine/key"), creation(s, "other/key")
		answered := make(chan error, 1)
		mine.Late = func(_ *clientv3.TxnResponse, err error) { answered <- err }
		_, waitForAll := commits(ctx, s, mine, other)
		f.Set(func(f *line) { f.OnTxn = held(release) })
		wait()
		synctest.Wait()
		f.Set(func(f *line) { f.OnTxn = nil })
		cancel()
		waitForAll()
		freed := make(chan struct{})
		s.Link().Epoch(epochKey).Doubt("other/key", func() { close(freed) })
		<-freed
		close(release)
		synctest.Wait()
		err := <-answered
		require.Error(t, err)
		require.False(t, request.Doubtful(err))
		require.False(t, f.Exists(t, "mine/key"))
		require.False(t, f.Exists(t, "other/key"))
	})
}

// Calls that give up and are made again do not pile up, whether etcd answers late or not at all.
func TestCallsThatGiveUpDoNotPileUp(t *testing.T) {
	for name, fate := range map[string]fate{"late answers": late(700 * time.Millisecond), "no answers": lost} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				s := open(t, f)
				f.Set(func(f *line) { f.OnTxn = fate })
				var begun, freed atomic.Int64
				free := func() { freed.Add(1) }
				end := time.Now().Add(20 * time.Second)
				call := func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
					defer cancel()
					if err := s.Link().Admit(ctx); err != nil {
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.False(t, request.Doubtful(err))
						return
					}
					n := begun.Add(1)
					key := fmt.Sprintf("%d/key%d", n%100, n)
					mine := creation(s, key)
					mine.Late = func(_ *clientv3.TxnResponse, err error) {
						if err != nil {
							s.Link().Epoch(epochKey).Doubt(key, free)
						} else {
							free()
						}
					}
					switch _, doubts, err := s.Link().Commit(ctx, mine); {
					case request.IsInFlight(err):
					case doubts > 0:
						s.Link().Epoch(epochKey).Doubt(key, free)
					default:
						free()
					}
				}
				const callers = 60
				for range callers {
					go func() {
						for time.Now().Before(end) {
							call()
						}
					}()
				}
				for range 34 {
					time.Sleep(599 * time.Millisecond)
					require.LessOrEqual(t, s.Link().Abandoned(), link.AbandonedLimit+callers)
					require.LessOrEqual(t, begun.Load()-freed.Load(), int64(link.AbandonedLimit+callers))
				}
				f.Set(func(f *line) { f.OnTxn = nil })
				time.Sleep(time.Minute)
				require.Equal(t, begun.Load(), freed.Load())
				require.Zero(t, s.Link().Abandoned())
				require.NoError(t, s.Link().Admit(context.Background()))
			})
		})
	}
}

func TestACommitWithGraceIsMadeOnce(t *testing.T) {
	for name, end := range map[string]time.Duration{
		"over before":         0,
		"over while it waits": 20 * time.Millisecond,
		"over under way":      70 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				s := open(t, f)
				f.Set(func(f *line) { f.OnTxn = late(50 * time.Millisecond) })
				wait := busy(t, f, s)
				caller, cancel := context.WithCancel(context.Background())
				if end == 0 {
					cancel()
				} else {
					time.AfterFunc(end, cancel)
				}
				mine := removals(t, f, s, "a", 1)[0]
				caller, done := request.Grace(caller)
				defer done()
				results, waitForIt := commits(caller, s, mine)
				wait()
				waitForIt()
				require.NoError(t, results[0].err)
				require.True(t, results[0].answer.Succeeded)
				require.Zero(t, results[0].doubts)
				require.Equal(t, 100*time.Millisecond, results[0].took)
				require.Equal(t, [][]string{{"a0"}}, keysOfAll(f.Requests()[coalesce.AloneLimit:]))
			})
		})
	}
}
