package session_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

// changes collects what a session tells.
type changes struct {
	mu   sync.Mutex
	told []session.Change
}

func (c *changes) option() session.Option {
	return session.WithOnChange(func(change session.Change) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told = append(c.told, change)
	})
}

// require returns the last change, and requires that the changes so far were to these states.
func (c *changes) require(t *testing.T, states ...session.State) session.Change {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	told := slices.Clone(c.told)
	c.mu.Unlock()
	require.Len(t, told, len(states))
	for i, state := range states {
		require.Equal(t, state, told[i].State)
	}
	return told[len(told)-1]
}

func TestChangesAreToldOnceEachAndInOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		s := open(t, f, c.option(), session.WithTTL(30*time.Second))
		time.Sleep(65 * time.Second) // the last renewal was 5 s ago
		require.Empty(t, c.told, "nothing has changed")

		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		time.Sleep(15 * time.Second)
		last := c.require(t, session.AtRisk)
		require.ErrorIs(t, last.Err, rpctypes.ErrNoLeader)
		require.Equal(t, s.Lease(), last.Lease)

		f.Renewals.Meet(answered)
		time.Sleep(20 * time.Second)
		require.NoError(t, c.require(t, session.AtRisk, session.Live).Err)

		f.Renewals.Meet(lost)
		time.Sleep(time.Hour)
		require.NoError(t, s.Close(context.Background()))
		last = c.require(t, session.AtRisk, session.Live, session.AtRisk, session.Lost)
		require.ErrorIs(t, last.Err, session.ErrLost)
	})
}

// A failure that is made good before anything is overdue is nobody's concern.
func TestARenewalThatFailsOnceIsNoChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		open(t, f, c.option(), session.WithTTL(30*time.Second))
		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		time.Sleep(11 * time.Second)
		require.Greater(t, len(f.Renewals.Times()), 1)
		f.Renewals.Meet(answered)
		time.Sleep(time.Minute)
		require.Empty(t, c.told)
	})
}

// The session may end while the renewal is reported that would make it live again.
func TestNothingIsToldAfterTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		var s *session.Session
		closed := make(chan error, 1)
		s = open(t, f, c.option(), session.WithTTL(30*time.Second), session.WithOnRenewal(func(r session.Renewal) {
			if r.Err == nil {
				go func() { closed <- s.Close(context.Background()) }()
				<-s.Done()
			}
		}))
		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		time.Sleep(20 * time.Second)
		c.require(t, session.AtRisk)
		f.Renewals.Meet(answered)
		require.NoError(t, <-closed)
		c.require(t, session.AtRisk, session.Closed)
	})
}

// A renewal that somebody asked for is as good as the session's own.
func TestARenewalOnDemandIsToldAsLive(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		s := open(t, f, c.option(), session.WithTTL(30*time.Second))
		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		time.Sleep(20 * time.Second)
		f.Renewals.Meet(answered)
		require.NoError(t, s.Renew(context.Background()))
		time.Sleep(5 * time.Second) // before the next turn
		c.require(t, session.AtRisk, session.Live)
	})
}

func TestAKeepersSessionsTellTheirOwnChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		client := f.Client()
		k := session.Keep(client, session.WithMonotonicClock(), c.option())
		require.Same(t, client, k.Client())
		first := sessionOf(t, k)
		f.Forget()
		time.Sleep(first.TTL())
		second := sessionOf(t, k)
		last := c.require(t, session.Lost)
		require.Equal(t, first.Lease(), last.Lease)
		require.ErrorIs(t, last.Err, rpctypes.ErrLeaseNotFound)
		for range 2 {
			require.NoError(t, k.Close(context.Background()))
		}
		last = c.require(t, session.Lost, session.Closed)
		require.Equal(t, second.Lease(), last.Lease)
		require.ErrorIs(t, last.Err, session.ErrClosed)
	})
}

func TestACallbackThatEndsItsGoroutineDoesNotEndTheRenewals(t *testing.T) {
	inEach(t, map[string]session.Option{
		"of a change":  session.WithOnChange(func(session.Change) { runtime.Goexit() }),
		"of a renewal": session.WithOnRenewal(func(session.Renewal) { runtime.Goexit() }),
	}, func(t *testing.T, f *fake, option session.Option) {
		s := open(t, f, option, session.WithTTL(30*time.Second))
		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		time.Sleep(20 * time.Second)
		require.Equal(t, session.AtRisk, s.State())
		f.Renewals.Meet(answered)
		time.Sleep(5 * time.Minute)
		require.Equal(t, session.Live, s.State())
	})
}
