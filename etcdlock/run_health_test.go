package etcdlock_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

var errSick = errors.New("sick")

// patient is a health check that fails while sick, and counts how often it did.
type patient struct {
	sick     atomic.Bool
	failures atomic.Int64
}

func (p *patient) option() etcdlock.Option {
	return etcdlock.WithHealthCheck(10*time.Millisecond, func(context.Context) error {
		if !p.sick.Load() {
			return nil
		}
		p.failures.Add(1)
		return errSick
	})
}

func (p *patient) awaitFailures(t *testing.T, n int64) {
	t.Helper()
	before := p.failures.Load()
	require.Eventually(t, func() bool { return p.failures.Load() >= before+n }, patience, time.Millisecond)
}

// requireUnhealthy waits for the end of a term that its health check has ended.
func requireUnhealthy(t *testing.T, ctx context.Context) {
	t.Helper()
	await(t, "the end of the context", ctx.Done())
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnhealthy)
}

// A check that has not been made when the next one is due counts as failed, so most of these tests run where
// no time passes while there is something to do, however slow the machine is.

func TestAnUnhealthyLeaderResignsAndDoesNotCampaignUntilItIsHealthy(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		var p patient
		r := c.run("a", p.option())
		first := r.next()
		c.stand("b")
		p.sick.Store(true)
		requireUnhealthy(t, first.ctx)
		require.ErrorIs(t, context.Cause(first.ctx), errSick)
		other := c.next("b")
		require.ErrorIs(t, first.Err(), etcdlock.ErrUnlocked)

		resign(t, other)
		before := c.cluster.AppliedIndex()
		p.awaitFailures(t, 100) // which takes longer than the pause between two terms
		require.Equal(t, before, c.cluster.AppliedIndex(), "it does not campaign")
		p.sick.Store(false)
		require.Greater(t, r.next().Token(), other.Token())
		r.finish()
	})
}

func TestACandidateThatIsUnhealthyAtTheStartDoesNotCampaign(t *testing.T) {
	c := newContest(t)
	var p patient
	p.sick.Store(true)
	r := c.run("a", p.option())
	p.awaitFailures(t, 3)
	require.Zero(t, c.cluster.Calls("Txn"))
	r.finish()
	require.Zero(t, c.cluster.Calls("Txn"))
}

// It became unhealthy while it waited.
func TestACandidateThatIsUnhealthyInItsTurnDoesNotLead(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		leader := c.lead("a")
		var p patient
		r := c.run("b", p.option())
		c.awaitLine("a", "b")
		p.sick.Store(true)
		c.stand("c")
		resign(t, leader)
		c.next("c")
		require.Empty(t, r.begun)
		r.finish()
	})
}

// A check that hangs is one that fails when its time is over, whether or not it heeds the end of its context: a
// sick process may not. It is not called again until it returns.
func TestAHealthCheckThatHangsDoesNotKeepALeader(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"it heeds its context": true, "it never returns": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualContest(t, func(t *testing.T, c *contest) {
				stuck := make(chan struct{})
				var hangs atomic.Bool
				var hanging atomic.Int64
				r := c.run("a", etcdlock.WithHealthCheck(20*time.Millisecond, func(ctx context.Context) error {
					if !hangs.Load() {
						return nil
					}
					hanging.Add(1)
					defer hanging.Add(-1)
					if !heeds {
						<-stuck
					}
					<-ctx.Done()
					return ctx.Err()
				}))
				term := r.next()
				hangs.Store(true)
				requireUnhealthy(t, term.ctx)
				awaitTickets(t, c.client, 0)
				time.Sleep(time.Second) // in which it would be asked again
				require.LessOrEqual(t, hanging.Load(), int64(1))
				r.finish()
				close(stuck)
			})
		})
	}
}

// A test's t.FailNow ends the goroutine, and so may what a check calls.
func TestAHealthCheckThatEndsItsGoroutineHasFailedAndIsCalledAgain(t *testing.T) {
	c := newContest(t)
	var calls atomic.Int64
	r := c.run("a", etcdlock.WithHealthCheck(50*time.Millisecond, func(context.Context) error {
		if calls.Add(1) <= 2 {
			runtime.Goexit()
		}
		return nil
	}))
	r.next()
	require.GreaterOrEqual(t, calls.Load(), int64(3))
	r.finish()
}
