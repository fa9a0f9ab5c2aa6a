package etcdlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
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

// A check that has not been made when the next one is due counts as failed, so most of these tests run where
// no time passes while there is something to do, however slow the machine is.

func virtualCandidate(t *testing.T, c *embedtest.Cluster) *etcdlock.Election {
	return etcdlock.NewElection(virtualSession(t, c.Client(t)), "controller")
}

// Scenario E6.
func TestAnUnhealthyLeaderResignsAndDoesNotCampaignUntilItIsHealthy(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		var p patient
		w := newTerms()
		returned, stop := running(t, etcdlock.NewElection(virtualKeeper(t, cluster.Client(t)), "controller", p.option()), "a", w.work)
		ctx, first := w.next(t)
		waiting := inLine(t, client, virtualCandidate(t, cluster), "b", 2)
		p.sick.Store(true)
		await(t, "the end of the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnhealthy)
		require.ErrorIs(t, context.Cause(ctx), errSick)
		other := awaitTerm(t, "the next leader", waiting)
		require.ErrorIs(t, first.Err(), etcdlock.ErrUnlocked)

		resign(t, other)
		before := cluster.AppliedIndex()
		p.awaitFailures(t, 100) // which takes longer than the pause between two terms
		require.Equal(t, before, cluster.AppliedIndex(), "it does not campaign")
		p.sick.Store(false)
		_, second := w.next(t)
		require.Greater(t, second.Token(), other.Token())
		finish(t, returned, stop)
	})
}

// Scenario E6.
func TestWhoIsUnhealthyAtTheStartDoesNotCampaign(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var p patient
	p.sick.Store(true)
	returned, stop := running(t, etcdlock.NewElection(keep(t, cluster.Client(t)), "controller", p.option()), "a", neverLeads)
	p.awaitFailures(t, 3)
	require.Zero(t, cluster.Calls("Txn"))
	finish(t, returned, stop)
	require.Zero(t, cluster.Calls("Txn"))
}

// Scenario E6: it became unhealthy while it waited.
func TestWhoIsUnhealthyWhenItsTurnComesDoesNotLead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		leader := lead(t, virtualCandidate(t, cluster), "a")
		var p patient
		returned, stop := running(t, etcdlock.NewElection(virtualKeeper(t, cluster.Client(t)), "controller", p.option()), "b", neverLeads)
		awaitLine(t, client, "a", "b")
		p.sick.Store(true)
		third := inLine(t, client, virtualCandidate(t, cluster), "c", 3)
		resign(t, leader)
		awaitTerm(t, "the one behind", third)
		finish(t, returned, stop)
	})
}

// What lead returns because it was unhealthy is not its own error.
func TestTheErrorOfAnUnhealthyLeaderDoesNotEndRun(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		var p patient
		begun := make(chan context.Context, 1)
		returned, stop := running(t, etcdlock.NewElection(virtualKeeper(t, cluster.Client(t)), "controller", p.option()), "a",
			func(ctx context.Context, _ *etcdlock.Term) error {
				begun <- ctx
				<-ctx.Done()
				return errSick
			})
		ctx := await(t, "the first term", begun)
		p.sick.Store(true)
		await(t, "the end of the context", ctx.Done())
		p.awaitFailures(t, 1)
		p.sick.Store(false)
		await(t, "the second term", begun)
		finish(t, returned, stop)
	})
}

// A check that hangs is one that fails, when its time is over.
func TestAHealthCheckThatHangsFails(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		var hangs atomic.Bool
		check := etcdlock.WithHealthCheck(20*time.Millisecond, func(ctx context.Context) error {
			if hangs.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w := newTerms()
		returned, stop := running(t, etcdlock.NewElection(virtualKeeper(t, cluster.Client(t)), "controller", check), "a", w.work)
		ctx, _ := w.next(t)
		hangs.Store(true)
		await(t, "the end of the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnhealthy)
		awaitTickets(t, cluster.Client(t), 0)
		finish(t, returned, stop)
	})
}

func TestAHealthCheckNeedsAFunctionAndAnInterval(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { etcdlock.WithHealthCheck(0, func(context.Context) error { return nil }) })
	require.Panics(t, func() { etcdlock.WithHealthCheck(time.Second, nil) })
}
