package session_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// renewals collects what a session reports of its renewals.
func renewals() (next func(*testing.T) session.Renewal, option session.Option) {
	reported := make(chan session.Renewal, 100)
	next = func(t *testing.T) session.Renewal {
		t.Helper()
		return <-reported
	}
	return next, session.WithOnRenewal(func(r session.Renewal) { reported <- r })
}

func TestEachRenewalIsReportedWithTheTrustThatWasLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		next, option := renewals()
		s := open(t, f, option, session.WithTTL(15*time.Second), session.WithMargin(time.Second))
		require.Equal(t, time.Second, s.Margin())
		require.Equal(t, session.Renewal{Lease: s.Lease(), Left: 9 * time.Second}, next(t))

		f.Set(func(f *fake) { f.OnRenew = late(time.Second) })
		require.Equal(t, session.Renewal{Lease: s.Lease(), Took: time.Second, Left: 8 * time.Second}, next(t))

		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		r := next(t)
		require.ErrorIs(t, r.Err, rpctypes.ErrNoLeader)
		require.Equal(t, 9*time.Second, r.Left)

		f.Set(func(f *fake) { f.OnRenew = lost })
		<-s.Done()
		silent := 0
		for r.Left > time.Second {
			if r = next(t); r.Took > 0 {
				require.ErrorContains(t, r.Err, "not been answered")
				silent++
			}
		}
		require.Greater(t, silent, 3)
	})
}

func TestAReportOfARenewalThatEndsItsGoroutineEndsNoSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithOnRenewal(func(session.Renewal) { runtime.Goexit() }))
		time.Sleep(time.Hour)
		require.NoError(t, s.Err())
	})
}

func TestRenewalsOnTheStreamAreReported(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		next, option := renewals()
		s := create(t, c.Client(t), session.WithTTL(30*time.Second), option)
		c.Delay("LeaseKeepAlive", time.Second, of(s.Lease()))
		for range 4 {
			require.Equal(t, session.Renewal{Lease: s.Lease(), Took: time.Second, Left: 16 * time.Second}, next(t))
		}
	})
}

func TestAKeepersCurrentSessionIsNotCreatedByLookingAtIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		requireNone := func() {
			t.Helper()
			s, ok := k.Current()
			require.Nil(t, s)
			require.False(t, ok)
		}
		requireNone()
		s, err := k.Session(context.Background())
		require.NoError(t, err)
		shown, ok := k.Current()
		require.True(t, ok)
		require.Same(t, s, shown)
		f.Set(func(f *fake) { clear(f.Alive) })
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrLost)
		requireNone()
		require.Len(t, f.GrantTimes(), 1)
		_, err = k.Session(context.Background())
		require.NoError(t, err)
		require.NoError(t, k.Close(context.Background()))
		requireNone()
	})
}
