package etcdlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func neverLeads(context.Context, *etcdlock.Term) error { panic("it leads") }

func TestRunReturnsTheLeadersErrorAsItIsAfterResigning(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	e := etcdlock.NewElection(keep(t, cluster.Client(t)), "controller")
	var seen *etcdlock.Term
	err := e.Run(within(t), "a", func(_ context.Context, term *etcdlock.Term) error {
		seen = term
		return errWork
	})
	require.Equal(t, errWork, err)
	require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked)
	require.Zero(t, tickets(t, cluster.Client(t)))
}

func TestALeadersPanicPassesThroughRunAfterResigning(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	healthy := etcdlock.WithHealthCheck(time.Hour, func(context.Context) error { return nil })
	e := etcdlock.NewElection(keep(t, cluster.Client(t)), "controller", healthy)
	require.PanicsWithValue(t, "work panicked", func() {
		_ = e.Run(within(t), "a", func(context.Context, *etcdlock.Term) error { panic("work panicked") })
	})
	require.Zero(t, tickets(t, cluster.Client(t)))
}

func TestRunEndsWithItsContextWhileItWaits(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	lead(t, candidate(t, cluster), "a")
	returned, stop := running(t, etcdlock.NewElection(keep(t, cluster.Client(t)), "controller"), "b", neverLeads)
	awaitLine(t, client, "a", "b")
	stop(errWork)
	err := await(t, "the end of Run", returned)
	require.ErrorIs(t, err, errWork)
	require.ErrorContains(t, err, `run "controller"`)
	awaitLine(t, client, "a")
}

func TestRunEndsWithItsContextWhileItLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	errStopped := errors.New("stopped")
	for name, outcome := range map[string]struct {
		lead  func(context.Context) error
		joins bool
	}{
		"content":           {func(context.Context) error { return nil }, false},
		"context's error":   {func(ctx context.Context) error { return ctx.Err() }, false},
		"context's cause":   {context.Cause, false},
		"error of its own":  {func(context.Context) error { return errWork }, true},
		"end of a deadline": {func(context.Context) error { return context.DeadlineExceeded }, false},
	} {
		e := etcdlock.NewElection(keep(t, cluster.Client(t)), "controller")
		begun := make(chan struct{})
		returned, stop := running(t, e, "a", func(ctx context.Context, term *etcdlock.Term) error {
			close(begun)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errStopped) || term.Err() != nil {
				t.Errorf("%s: cause %v, term %v", name, context.Cause(ctx), term.Err())
			}
			return outcome.lead(ctx)
		})
		await(t, "the term", begun)
		stop(errStopped)
		err := await(t, "the end of Run", returned)
		require.ErrorIs(t, err, errStopped, name)
		require.Equal(t, outcome.joins, errors.Is(err, errWork), name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
		require.Zero(t, tickets(t, cluster.Client(t)), name)
	}
}

func TestRunReturnsWhatWillNotPass(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	closed := session.Keep(client)
	require.NoError(t, closed.Close(within(t)))
	lost := newSession(t, client)
	revoke(t, client, lost)
	require.ErrorIs(t, lost.Renew(within(t)), etcdlock.ErrLost)
	for name, c := range map[string]struct {
		source session.Source
		name   string
		want   error
	}{
		"closed keeper": {closed, "controller", etcdlock.ErrClosed},
		"lost session":  {lost, "controller", etcdlock.ErrLost},
		"invalid name":  {keep(t, client), "", etcdlock.ErrInvalidName},
	} {
		require.ErrorIs(t, etcdlock.NewElection(c.source, c.name).Run(within(t), "a", neverLeads), c.want, name)
	}
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace} {
		fault := cluster.Refuse("Txn", refusal, embedtest.Once())
		err := etcdlock.NewElection(keep(t, client), "controller").Run(within(t), "a", neverLeads)
		require.ErrorIs(t, err, refusal)
		require.Equal(t, 1, fault.Bites())
	}
}

// A session that is lost during the term ends Run at the next campaign, unless it is a Keeper's.
func TestRunEndsWithItsSession(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	err := etcdlock.NewElection(s, "controller").Run(within(t), "a", func(ctx context.Context, _ *etcdlock.Term) error {
		revoke(t, cluster.Client(t), s)
		require.ErrorIs(t, s.Renew(ctx), etcdlock.ErrLost)
		return ctx.Err()
	})
	require.ErrorIs(t, err, etcdlock.ErrLost)

	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	err = etcdlock.NewElection(keeper, "controller").Run(within(t), "a", func(ctx context.Context, term *etcdlock.Term) error {
		require.NoError(t, keeper.Close(ctx))
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrClosed)
		return errWork
	})
	require.ErrorIs(t, err, etcdlock.ErrClosed)
	require.NotErrorIs(t, err, errWork)
}

// Scenario E3.
func TestASlowLeaderIsNotReplacedBeforeItHasStopped(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	keeper := keep(t, cluster.Client(t), session.WithTTL(secondTTL))
	e := etcdlock.NewElection(keeper, "controller")
	var stopped atomic.Bool
	begun, stopping, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	returned, stop := running(t, e, "slow", func(ctx context.Context, _ *etcdlock.Term) error {
		close(begun)
		<-ctx.Done()
		close(stopping)
		<-finish
		stopped.Store(true)
		return nil
	})
	await(t, "the term", begun)
	waiting := inLine(t, client, candidate(t, cluster), "next", 2)
	stop(errWork)
	await(t, "the end of the context", stopping)
	// As many renewals as it takes to outlast the TTL by far.
	before := cluster.Calls("LeaseKeepAlive")
	require.Eventually(t, func() bool { return cluster.Calls("LeaseKeepAlive") >= before+6 }, patience, 5*time.Millisecond)
	stillWaiting(t, waiting)
	require.Equal(t, []string{"slow", "next"}, valuesInLine(t, client))
	close(finish)
	awaitTerm(t, "the next leader", waiting)
	require.True(t, stopped.Load())
	require.ErrorIs(t, await(t, "the end of Run", returned), errWork)
}

// Scenarios E3 and H1: the leader cannot be reached, and its context ends first.
func TestACutOffLeadersContextEndsBeforeAnotherLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	// The margin is as large as may be, so that a slow machine does not fail the test.
	keeper := keep(t, client, session.WithTTL(3*time.Second), session.WithMargin(1400*time.Millisecond))
	begun := make(chan context.Context, 1)
	returned, stop := running(t, etcdlock.NewElection(keeper, "controller"), "cut off", func(ctx context.Context, _ *etcdlock.Term) error {
		select {
		case begun <- ctx:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx := await(t, "the term", begun)
	waiting := inLine(t, cluster.Client(t), candidate(t, cluster), "next", 2)
	link.Blackhole()
	next := await(t, "the next leader", waiting)
	require.Error(t, ctx.Err())
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrLost)
	require.NoError(t, next.err)
	stop(errWork)
	require.ErrorIs(t, await(t, "the end of Run", returned), errWork)
}
