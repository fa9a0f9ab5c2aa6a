package session_test

import (
	"context"
	"runtime"
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

func (c *changes) states() []session.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := []session.State{}
	for _, change := range c.told {
		states = append(states, change.State)
	}
	return states
}

func (c *changes) last() session.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[len(c.told)-1]
}

func TestChangesAreToldOnceEachAndInOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		s := open(t, f, c.option(), session.WithTTL(30*time.Second))
		time.Sleep(65 * time.Second) // the last renewal was 5 s ago
		require.Empty(t, c.states(), "nothing has changed")

		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		time.Sleep(15 * time.Second)
		require.Equal(t, []session.State{session.AtRisk}, c.states())
		require.ErrorIs(t, c.last().Err, rpctypes.ErrNoLeader)
		require.Equal(t, s.Lease(), c.last().Lease)

		f.Set(func(f *fake) { f.OnRenew = nil })
		time.Sleep(20 * time.Second)
		require.Equal(t, []session.State{session.AtRisk, session.Live}, c.states())
		require.NoError(t, c.last().Err)

		f.Set(func(f *fake) { f.OnRenew = lost })
		time.Sleep(time.Hour)
		require.Equal(t, []session.State{session.AtRisk, session.Live, session.AtRisk, session.Lost}, c.states())
		require.ErrorIs(t, c.last().Err, session.ErrLost)
		require.NoError(t, s.Close(context.Background()))
		synctest.Wait()
		require.Len(t, c.states(), 4, "the loss is the end")
	})
}

// A failure that is made good before anything is overdue is nobody's concern.
func TestARenewalThatFailsOnceIsNoChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		open(t, f, c.option(), session.WithTTL(30*time.Second))
		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		time.Sleep(11 * time.Second)
		require.Greater(t, len(f.RenewalTimes()), 1)
		f.Set(func(f *fake) { f.OnRenew = nil })
		time.Sleep(time.Minute)
		require.Empty(t, c.states())
	})
}

func TestCloseIsToldOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		s := open(t, f, c.option())
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, s.Close(context.Background()))
		synctest.Wait()
		require.Equal(t, []session.State{session.Closed}, c.states())
		require.ErrorIs(t, c.last().Err, session.ErrClosed)
	})
}

// An answer and the end of the session may come at the same moment.
func TestNothingIsToldAfterTheEnd(t *testing.T) {
	for range 300 {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			var c changes
			s := open(t, f, c.option(), session.WithTTL(30*time.Second))
			f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
			time.Sleep(20 * time.Second)
			require.Equal(t, []session.State{session.AtRisk}, c.states())
			closed := make(chan error, 1)
			var once sync.Once
			f.Set(func(f *fake) {
				f.OnRenew = func(_ context.Context, do func() error) error {
					once.Do(func() { go func() { closed <- s.Close(context.Background()) }() })
					return do()
				}
			})
			require.NoError(t, <-closed)
			synctest.Wait()
			require.Equal(t, session.Closed, c.last().State)
		})
	}
}

// A renewal that somebody asked for is as good as the session's own.
func TestARenewalOnDemandIsToldAsLive(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		s := open(t, f, c.option(), session.WithTTL(30*time.Second))
		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		time.Sleep(20 * time.Second)
		f.Set(func(f *fake) { f.OnRenew = nil })
		require.NoError(t, s.Renew(context.Background()))
		time.Sleep(5 * time.Second) // before the next turn
		require.Equal(t, []session.State{session.AtRisk, session.Live}, c.states())
	})
}

func TestAKeepersSessionsTellTheirOwnChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		var c changes
		client := f.Client()
		k := session.Keep(client, session.WithMonotonicClock(), c.option())
		require.Same(t, client, k.Client())
		first, err := k.Session(context.Background())
		require.NoError(t, err)
		f.Set(func(f *fake) { delete(f.Alive, first.Lease()) })
		time.Sleep(first.TTL())
		second, err := k.Session(context.Background())
		require.NoError(t, err)
		require.Equal(t, first.Lease(), c.last().Lease)
		require.ErrorIs(t, c.last().Err, rpctypes.ErrLeaseNotFound)
		require.NoError(t, k.Close(context.Background()))
		synctest.Wait()
		require.Equal(t, []session.State{session.Lost, session.Closed}, c.states())
		require.Equal(t, second.Lease(), c.last().Lease)
	})
}

func TestACallbackThatEndsItsGoroutineDoesNotEndTheRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithOnChange(func(session.Change) { runtime.Goexit() }), session.WithTTL(30*time.Second))
		f.Set(func(f *fake) { f.OnRenew = refused(rpctypes.ErrNoLeader) })
		time.Sleep(20 * time.Second)
		require.Equal(t, session.AtRisk, s.State())
		f.Set(func(f *fake) { f.OnRenew = nil })
		time.Sleep(5 * time.Minute)
		require.Equal(t, session.Live, s.State())
	})
}
