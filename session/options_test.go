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
		f.Grants.Meet(refused(rpctypes.ErrLeaseTTLTooLarge))
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

func TestWhatCannotWorkPanics(t *testing.T) {
	var none context.Context
	ctx := context.Background()
	client := newFake().Client()
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s, k := open(t, f), keep(t, f)
		for message, calls := range map[string][]func(){
			"session: New needs a client":  {func() { _, _ = session.New(ctx, nil) }},
			"session: New needs a context": {func() { _, _ = session.New(none, client) }},
			"session: Keep needs a client": {func() { session.Keep(nil) }},
			"session: nil option": {
				func() { session.Keep(client, nil) },
				func() { _, _ = session.New(ctx, client, nil) },
			},
			"session: Retry needs a function": {func() { _ = session.Retry(ctx, nil) }},
			"session: a Keeper is made with Keep": {
				func() { _, _ = new(session.Keeper).Session(ctx) },
				func() { _ = new(session.Keeper).Close(ctx) },
			},
			"session: a Session is made with New": {
				func() { _ = new(session.Session).Err() },
				func() { _ = new(session.Session).Close(ctx) },
			},
			"session: nil context": {
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
			},
		} {
			for i, call := range calls {
				require.PanicsWithValue(t, message, call, i)
			}
		}
		require.NoError(t, s.Err())
	})
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

func TestTTLAndMarginDecideTheDeadlineAndTheRenewals(t *testing.T) {
	type test struct {
		options      []session.Option
		least        int64 // that the server grants
		ttl, trusted time.Duration
	}
	inEach(t, map[string]test{
		"by default":          {nil, 0, 15 * time.Second, 13500 * time.Millisecond},
		"at least a second":   {[]session.Option{session.WithTTL(1)}, 0, time.Second, 800 * time.Millisecond}, // the margin is 200 ms at least
		"a second":            {[]session.Option{session.WithTTL(time.Second)}, 0, time.Second, 800 * time.Millisecond},
		"rounded up":          {[]session.Option{session.WithTTL(time.Second + 1)}, 0, 2 * time.Second, 1800 * time.Millisecond},
		"a margin":            {[]session.Option{session.WithTTL(10 * time.Second), session.WithMargin(4 * time.Second)}, 0, 10 * time.Second, 6 * time.Second},
		"the server's counts": {[]session.Option{session.WithTTL(time.Second)}, 9, 9 * time.Second, 8100 * time.Millisecond},
	}, func(t *testing.T, f *fake, test test) {
		f.MinTTL = test.least
		start := time.Now()
		s := open(t, f, test.options...)
		require.Equal(t, test.ttl, s.TTL())
		require.Equal(t, start.Add(test.trusted), s.Deadline())
		time.Sleep(test.ttl / 2)
		require.Equal(t, []time.Time{start.Add(test.ttl / 3)}, f.Renewals.Times())
	})
}

func TestTTLAndMarginThatMakeNoSenseAreRefusedAndLeaveNoLease(t *testing.T) {
	refuse := func(t *testing.T, f *fake, says string, options ...session.Option) {
		_, err := session.New(context.Background(), f.Client(), options...)
		require.ErrorContains(t, err, says)
		require.Zero(t, f.LeaseCount())
	}
	inEach(t, named[time.Duration](0, -1, math.MinInt64), func(t *testing.T, f *fake, ttl time.Duration) {
		refuse(t, f, "TTL must be positive", session.WithTTL(ttl))
	})
	inEach(t, named(0, -time.Second, 5*time.Second, time.Hour), func(t *testing.T, f *fake, margin time.Duration) {
		refuse(t, f, "margin", session.WithTTL(10*time.Second), session.WithMargin(margin))
	})
}

// No member answers, whether or not the caller has set a limit.
func TestNewGivesUpWithItsContextOrByItself(t *testing.T) {
	inEach(t, map[string]time.Duration{"by itself": 0, "context": time.Minute}, func(t *testing.T, f *fake, limit time.Duration) {
		f.Grants.Meet(lost)
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

func TestNewTriesAgainAndReturnsEtcdsRefusalAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.Grants.Meet(refused(rpctypes.ErrTooManyRequests))
		heal := time.AfterFunc(3*time.Second, func() { f.Grants.Meet(answered) })
		defer heal.Stop()
		s := open(t, f)
		require.NoError(t, s.Err())
		require.Equal(t, f.Client().Lease, s.Client().Lease)

		f.Grants.Meet(refused(rpctypes.ErrPermissionDenied))
		before := len(f.Grants.Times())
		_, err := session.New(context.Background(), f.Client())
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.Len(t, f.Grants.Times(), before+1)
	})
}
