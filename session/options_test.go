package session_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

func TestLongestTTLDoesNotOverflow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = refused(rpctypes.ErrLeaseTTLTooLarge)
		_, err := session.New(context.Background(), f.Client(), session.WithTTL(math.MaxInt64))
		require.ErrorIs(t, err, rpctypes.ErrLeaseTTLTooLarge, "not one about a TTL below zero")
	})
}

func TestTheClockIsTheCallersOrTheDefault(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var asked atomic.Int64
		s := open(t, f, session.WithClock(func() time.Duration { asked.Add(1); return time.Hour }))
		before := asked.Load()
		require.NoError(t, s.Err())
		require.Greater(t, asked.Load(), before)
	})
	s, err := session.New(context.Background(), newFake().Client(), session.WithClock(nil))
	require.NoError(t, err)
	require.NoError(t, s.Err())
	require.NoError(t, s.Close(context.Background()))
}

func TestNilClientAndContextPanic(t *testing.T) {
	var none context.Context
	require.PanicsWithValue(t, "session: New needs a client", func() { _, _ = session.New(context.Background(), nil) })
	require.PanicsWithValue(t, "session: New needs a context", func() { _, _ = session.New(none, newFake().Client()) })
	require.PanicsWithValue(t, "session: Keep needs a client", func() { session.Keep(nil) })
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s, k := open(t, f), keep(t, f)
		for i, call := range []func(){
			func() { _, _ = k.Session(none) },
			func() { _ = k.Close(none) },
			func() { _ = s.Renew(none) },
			func() { _ = s.Close(none) },
			func() { _ = s.Link().Call(none, func(context.Context) error { return nil }) },
			func() { _, _, _ = s.Link().Commit(none, link.Transaction{}) },
			func() { _ = s.Link().InTurn(none, func() error { return nil }) },
			func() { _, _ = s.Link().Watch(none, time.Second, "", "key") },
			func() { _ = session.Retry(none, func(context.Context) error { return nil }) },
			func() { request.Grace(none) },
		} {
			require.PanicsWithValue(t, "session: nil context", call, i)
		}
		require.NoError(t, s.Err())
	})
}

func TestNilOptionsAndFunctionsPanic(t *testing.T) {
	ctx := context.Background()
	require.PanicsWithValue(t, "session: nil option", func() { session.Keep(newFake().Client(), nil) })
	require.PanicsWithValue(t, "session: nil option", func() { _, _ = session.New(ctx, newFake().Client(), nil) })
	require.PanicsWithValue(t, "session: Retry needs a function", func() { _ = session.Retry(ctx, nil) })
}

func TestZeroValuesPanic(t *testing.T) {
	ctx := context.Background()
	require.PanicsWithValue(t, "session: a Keeper is made with Keep", func() { _, _ = new(session.Keeper).Session(ctx) })
	require.PanicsWithValue(t, "session: a Keeper is made with Keep", func() { _ = new(session.Keeper).Close(ctx) })
	require.PanicsWithValue(t, "session: a Session is made with New", func() { _ = new(session.Session).Err() })
	require.PanicsWithValue(t, "session: a Session is made with New", func() { _ = new(session.Session).Close(ctx) })
}

func TestNewsContextBoundsTheCreationOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := session.New(ctx, f.Client(), session.WithMonotonicClock())
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.NoError(t, s.Close(context.Background()))
	})
}

func TestTTLAndMarginDecideTheDeadline(t *testing.T) {
	for _, test := range []struct {
		options []session.Option
		ttl     time.Duration
		trusted time.Duration
	}{
		{nil, 15 * time.Second, 13500 * time.Millisecond},
		{[]session.Option{session.WithTTL(time.Nanosecond)}, time.Second, 800 * time.Millisecond}, // the margin is 200 ms at least
		{[]session.Option{session.WithTTL(time.Second)}, time.Second, 800 * time.Millisecond},
		{[]session.Option{session.WithTTL(time.Second + 1)}, 2 * time.Second, 1800 * time.Millisecond},
		{[]session.Option{session.WithTTL(10 * time.Second), session.WithMargin(4 * time.Second)}, 10 * time.Second, 6 * time.Second},
	} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			start := time.Now()
			s := open(t, f, test.options...)
			require.Equal(t, test.ttl, s.TTL())
			require.Equal(t, start.Add(test.trusted), s.Deadline())
		})
	}
}

func TestTTLAndMarginThatMakeNoSenseAreRefusedAndLeaveNoLease(t *testing.T) {
	refuse := func(t *testing.T, says string, options ...session.Option) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			_, err := session.New(context.Background(), f.Client(), options...)
			require.ErrorContains(t, err, says)
			require.Zero(t, f.LeaseCount())
		})
	}
	for _, ttl := range []time.Duration{0, -1, math.MinInt64} {
		refuse(t, "TTL must be positive", session.WithTTL(ttl))
	}
	for _, margin := range []time.Duration{0, -time.Second, 5 * time.Second, time.Hour} {
		refuse(t, "margin", session.WithTTL(10*time.Second), session.WithMargin(margin))
	}
}

// No member answers, whether or not the caller has set a limit.
func TestNewGivesUpWithItsContextOrByItself(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.OnGrant = lost
			ctx, wait := context.Background(), 10*time.Second
			if limit > 0 {
				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				ctx, wait = limited, limit
			}
			start := time.Now()
			_, err := session.New(ctx, f.Client())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, wait, time.Since(start))
		})
	}
}

func TestNewTriesAgainAndReturnsEtcdsRefusalAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.OnGrant = refused(rpctypes.ErrTooManyRequests)
		heal := time.AfterFunc(3*time.Second, func() { f.Set(func(f *fake) { f.OnGrant = nil }) })
		defer heal.Stop()
		s := open(t, f)
		require.NoError(t, s.Err())
		require.Equal(t, f.Client().Lease, s.Client().Lease)

		f.Set(func(f *fake) { f.OnGrant = refused(rpctypes.ErrPermissionDenied) })
		before := len(f.GrantTimes())
		_, err := session.New(context.Background(), f.Client())
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.Len(t, f.GrantTimes(), before+1)
	})
}
