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
	f.Meet(late(10 * time.Millisecond))
	waitForOthers := busy(t, f, s)
	results, wait := commits(ctx, s, mine)
	f.Meet(next)
	waitForOthers()
	return results[0], wait
}

// An answer that comes when the caller has given up leaves no doubt.
func TestALateAnswerIsDeliveredOnce(t *testing.T) {
	answers := named(300*time.Millisecond, 2*time.Second, time.Hour)
	inEach(t, answers, func(t *testing.T, f *line, s *session.Session, answered time.Duration) {
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
}

// Late gets the outcome of one attempt. Those before it may have taken effect all the same.
func TestARetryAfterAnUnansweredAttemptIsNotLeftToLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
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
	var suspended atomic.Int64
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
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
	}, session.WithClock(func() time.Duration { return time.Duration(time.Now().UnixNano() + suspended.Load()) }))
}

// By then a transaction of a request that was held up may have been given up, and its name be free.
func TestASharedRequestOfAnEarlierEpochCreatesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(late(10 * time.Millisecond))
		wait := busy(t, f, s)
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		mine, other := creation(s, "mine/key"), creation(s, "other/key")
		delivered := make(chan error, 1)
		mine.Late = func(_ *clientv3.TxnResponse, err error) { delivered <- err }
		_, waitForAll := commits(ctx, s, mine, other)
		f.Meet(held(release))
		wait()
		synctest.Wait()
		f.Meet(answered)
		cancel()
		waitForAll()
		<-doubt(epoch(s), "other/key")
		close(release)
		synctest.Wait()
		err := <-delivered
		require.Error(t, err)
		require.False(t, request.Doubtful(err))
		require.False(t, f.Exists(t, "mine/key"))
		require.False(t, f.Exists(t, "other/key"))
	})
}

// Calls that give up and are made again do not pile up, whether etcd answers late or not at all.
func TestCallsThatGiveUpDoNotPileUp(t *testing.T) {
	fates := map[string]fate{"late answers": late(700 * time.Millisecond), "no answers": lost}
	inEach(t, fates, func(t *testing.T, f *line, s *session.Session, fate fate) {
		f.Meet(fate)
		var begun, freed atomic.Int64
		free := func() { freed.Add(1) }
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
					epoch(s).Doubt(key, free)
				} else {
					free()
				}
			}
			switch _, doubts, err := s.Link().Commit(ctx, mine); {
			case request.IsInFlight(err):
			case doubts > 0:
				epoch(s).Doubt(key, free)
			default:
				free()
			}
		}
		const callers = 60
		end := time.Now().Add(20 * time.Second)
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
		f.Meet(answered)
		time.Sleep(time.Minute)
		require.Equal(t, begun.Load(), freed.Load())
		require.Zero(t, s.Link().Abandoned())
		require.NoError(t, s.Link().Admit(context.Background()))
	})
}

func TestACommitWithGraceIsMadeOnce(t *testing.T) {
	inEach(t, map[string]time.Duration{
		"over before":         -1,
		"over while it waits": 20 * time.Millisecond,
		"over under way":      70 * time.Millisecond,
	}, func(t *testing.T, f *line, s *session.Session, end time.Duration) {
		f.Meet(late(50 * time.Millisecond))
		wait := busy(t, f, s)
		caller, cancel := context.WithTimeout(context.Background(), end)
		defer cancel()
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
}
