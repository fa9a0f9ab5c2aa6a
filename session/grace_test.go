package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// graceCases are callers whose contexts end, and how long what cleans up for them lasts.
var graceCases = map[string]struct {
	caller func() (context.Context, context.CancelFunc)
	lasts  time.Duration
	err    error
}{
	"cancelled before": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}, 250 * time.Millisecond, context.Canceled},
	"expired before": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), -time.Hour)
	}, 250 * time.Millisecond, context.DeadlineExceeded},
	"expires soon": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 100*time.Millisecond)
	}, 250 * time.Millisecond, context.DeadlineExceeded},
	"expires later": {func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), time.Minute)
	}, time.Minute, context.DeadlineExceeded},
	"cancelled soon": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		return ctx, cancel
	}, 250 * time.Millisecond, context.Canceled},
	"cancelled later": {func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		time.AfterFunc(time.Minute, cancel)
		return ctx, cancel
	}, time.Minute, context.Canceled},
}

// R2: cleaning up after a call whose context is over.
func TestGrace(t *testing.T) {
	type key struct{}
	for name, test := range graceCases {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, _ *fake) {
				caller, cancel := test.caller()
				defer cancel()
				graced, done := request.Grace(context.WithValue(caller, key{}, "value"))
				defer done()
				start := time.Now()
				require.NoError(t, graced.Err())
				require.Equal(t, "value", graced.Value(key{}))
				<-graced.Done()
				require.Equal(t, test.lasts, time.Since(start))
				require.ErrorIs(t, graced.Err(), context.Canceled)
				require.ErrorIs(t, context.Cause(graced), test.err)
			})
		})
	}
	t.Run("without an end", func(t *testing.T) {
		graced, done := request.Grace(context.Background())
		_, limited := graced.Deadline()
		require.False(t, limited)
		done()
		require.Error(t, graced.Err())
	})
	t.Run("ended by its owner", func(t *testing.T) {
		caller, cancel := context.WithCancel(context.Background())
		defer cancel()
		graced, done := request.Grace(caller)
		done()
		require.Error(t, graced.Err())
		require.NoError(t, caller.Err())
	})
}

func TestACommitWithGraceLastsAsGraceDoes(t *testing.T) {
	for name, test := range graceCases {
		for _, together := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", with others"}[together], func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					s := open(t, f, session.WithTTL(time.Hour))
					f.set(func(f *fake) { f.txn = lost })
					if together {
						busy(f, s)
					}
					caller, cancel := test.caller()
					defer cancel()
					caller, done := request.Grace(caller)
					defer done()
					mine := removals(f, s, "a", 1)[0]
					start := time.Now()
					_, doubts, err := s.Link().Commit(caller, mine)
					require.Equal(t, test.lasts, time.Since(start))
					require.ErrorIs(t, err, test.err)
					require.Positive(t, doubts)
				})
			})
		}
	}
}

func TestACommitWithGraceIsMadeOnce(t *testing.T) {
	for name, end := range map[string]time.Duration{
		"over before":         0,
		"over while it waits": 20 * time.Millisecond,
		"over under way":      70 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
				wait := busy(f, s)
				caller, cancel := context.WithCancel(context.Background())
				if end == 0 {
					cancel()
				} else {
					time.AfterFunc(end, cancel)
				}
				mine := removals(f, s, "a", 1)[0]
				caller, done := request.Grace(caller)
				defer done()
				results, waitForIt := commits(caller, s, mine)
				wait()
				waitForIt()
				require.NoError(t, results[0].err)
				require.True(t, results[0].answer.Succeeded)
				require.Zero(t, results[0].doubts)
				require.Equal(t, 100*time.Millisecond, results[0].took)
				require.Equal(t, [][]string{{"a0"}}, f.sent()[link.AloneLimit:])
			})
		})
	}
}
