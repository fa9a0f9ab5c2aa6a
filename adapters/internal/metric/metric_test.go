package metric_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/adapters/internal/metric"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrorsHaveOneType(t *testing.T) {
	for want, err := range map[string]error{
		"busy": etcdlock.ErrBusy, "timeout": context.DeadlineExceeded, "cancelled": context.Canceled,
		"lost": errors.Join(context.Canceled, etcdlock.ErrLost), "closed": errors.Join(etcdlock.ErrClosed, etcdlock.ErrLost),
		"refused": rpctypes.ErrPermissionDenied, "other": etcdlock.ErrInvalidName,
	} {
		require.Equal(t, want, metric.ErrorType(fmt.Errorf("lock: %w", err)))
	}
}

func TestNamesThatAreNotListedShareALabel(t *testing.T) {
	names := metric.Names{"orders": true}
	require.Equal(t, "orders", names.Label("orders"))
	require.Equal(t, "other", names.Label("customer 7"))
}

func TestValuesAreMadeOnce(t *testing.T) {
	var table metric.Table[*int64]
	var made atomic.Int64
	var working sync.WaitGroup
	for range 50 {
		for _, label := range []string{"a", "b"} {
			working.Go(func() {
				for _, kind := range []string{"mutex", "read"} {
					v := table.Of(metric.Key{Kind: kind, Label: label}, func(metric.Key) *int64 {
						made.Add(1)
						return new(int64)
					})
					atomic.AddInt64(v, 1)
				}
			})
		}
	}
	working.Wait()
	require.EqualValues(t, 4, made.Load())
	require.EqualValues(t, 50, *table.Of(metric.Key{Kind: "mutex", Label: "a"}, nil))
}

// A low is seen for a minute at least, so every scrape interval up to that sees it, and for two at most.
func TestLowIsKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trust metric.Trust
		require.False(t, trust.Read().Known)
		trust.Renewed(session.Renewal{Left: 9 * time.Second})
		time.Sleep(59 * time.Second)
		trust.Renewed(session.Renewal{Left: 2 * time.Second, Err: context.DeadlineExceeded})
		trust.Renewed(session.Renewal{Left: 3 * time.Second})
		require.Equal(t, 2*time.Second, trust.Read().Lowest)
		time.Sleep(time.Minute)
		trust.Renewed(session.Renewal{Left: 8 * time.Second})
		require.Equal(t, 2*time.Second, trust.Read().Lowest)
		time.Sleep(time.Minute)
		trust.Renewed(session.Renewal{Left: 9 * time.Second})
		require.Equal(t, 8*time.Second, trust.Read().Lowest)
		time.Sleep(2 * time.Minute)
		require.False(t, trust.Read().Known)
		trust.Renewed(session.Renewal{Left: -time.Second})
		require.Zero(t, trust.Read().Lowest)
	})
}

func TestLookingUpAllocatesNothing(t *testing.T) {
	var table metric.Table[int]
	k := metric.Key{Kind: "mutex", Label: "orders"}
	create := func(metric.Key) int { return 1 }
	table.Of(k, create)
	require.Zero(t, testing.AllocsPerRun(100, func() { table.Of(k, create) }))
}
