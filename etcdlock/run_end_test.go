package etcdlock_test

import (
	"context"
	"errors"
	"strings"
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

func TestRunPassesTheLeadersErrorAndPanicOnAfterResigning(t *testing.T) {
	c := newContest(t)
	healthy := etcdlock.WithHealthCheck(time.Hour, func(context.Context) error { return nil })
	e := etcdlock.NewElection(c.keeper(), "controller", healthy)
	var seen *etcdlock.Term
	require.Equal(t, errWork, e.Run(within(t), "a", func(_ context.Context, term *etcdlock.Term) error {
		seen = term
		return errWork
	}), "as it is")
	require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked)
	require.Zero(t, tickets(t, c.client))

	require.PanicsWithValue(t, "work panicked", func() {
		_ = e.Run(within(t), "a", func(context.Context, *etcdlock.Term) error { panic("work panicked") })
	})
	require.Zero(t, tickets(t, c.client))
}

func TestRunEndsWithItsContextWhileItWaits(t *testing.T) {
	c := newContest(t)
	c.lead("a")
	returned, stop := running(t, etcdlock.NewElection(c.keeper(), "controller"), "b", neverLeads)
	c.awaitLine("a", "b")
	stop(errWork)
	err := await(t, "the end of Run", returned)
	require.ErrorIs(t, err, errWork)
	require.ErrorContains(t, err, `run "controller"`)
	c.awaitLine("a")
}

func TestRunEndsWithItsContextWhileItLeads(t *testing.T) {
	c := newContest(t)
	errStopped := errors.New("stopped")
	for _, outcome := range []struct {
		lead  func(context.Context) error
		joins bool // the error of Run
	}{
		{func(context.Context) error { return nil }, false},
		{func(ctx context.Context) error { return ctx.Err() }, false},
		{context.Cause, false},
		{func(context.Context) error { return errWork }, true},
		{func(context.Context) error { return context.DeadlineExceeded }, false},
	} {
		begun := make(chan struct{})
		returned, stop := running(t, etcdlock.NewElection(c.keeper(), "controller"), "a", func(ctx context.Context, term *etcdlock.Term) error {
			close(begun)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errStopped) || term.Err() != nil {
				t.Errorf("cause %v, term %v", context.Cause(ctx), term.Err())
			}
			return outcome.lead(ctx)
		})
		await(t, "the term", begun)
		stop(errStopped)
		err := await(t, "the end of Run", returned)
		require.ErrorIs(t, err, errStopped)
		require.Equal(t, outcome.joins, errors.Is(err, errWork))
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, tickets(t, c.client))
	}
}

func TestRunReturnsWhatWillNotPass(t *testing.T) {
	c := newContest(t)
	closed := session.Keep(c.client)
	require.NoError(t, closed.Close(within(t)))
	lost := newSession(t, c.client)
	lose(t, c.client, lost)
	for name, one := range map[string]struct {
		source      session.Source
		name, value string
		want        error
	}{
		"closed keeper":   {closed, "controller", "a", etcdlock.ErrClosed},
		"lost session":    {lost, "controller", "a", etcdlock.ErrLost},
		"invalid name":    {c.keeper(), "", "a", etcdlock.ErrInvalidName},
		"too large value": {c.keeper(), "controller", strings.Repeat("v", 1<<20+1), etcdlock.ErrTooLarge},
	} {
		require.ErrorIs(t, etcdlock.NewElection(one.source, one.name).Run(within(t), one.value, neverLeads), one.want, name)
	}
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace} {
		fault := c.cluster.Refuse("Txn", refusal, embedtest.Once())
		err := etcdlock.NewElection(c.keeper(), "controller").Run(within(t), "a", neverLeads)
		require.ErrorIs(t, err, refusal)
		require.Equal(t, 1, fault.Bites())
	}
}

// A session that is lost during the term ends Run at the next campaign, unless it is a Keeper's.
func TestRunEndsWithItsSession(t *testing.T) {
	c := newContest(t)
	s := newSession(t, c.client)
	err := etcdlock.NewElection(s, "controller").Run(within(t), "a", func(ctx context.Context, _ *etcdlock.Term) error {
		lose(t, c.client, s)
		return ctx.Err()
	})
	require.ErrorIs(t, err, etcdlock.ErrLost)

	keeper := c.keeper()
	err = etcdlock.NewElection(keeper, "controller").Run(within(t), "a", func(ctx context.Context, term *etcdlock.Term) error {
		require.NoError(t, keeper.Close(ctx))
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrClosed)
		return errWork
	})
	require.ErrorIs(t, err, etcdlock.ErrClosed)
	require.NotErrorIs(t, err, errWork)
}

func TestASlowLeaderIsNotReplacedBeforeItHasStopped(t *testing.T) {
	c := newContest(t)
	keeper := keep(t, c.cluster.Client(t), session.WithTTL(secondTTL))
	var stopped atomic.Bool
	begun, stopping, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	returned, stop := running(t, etcdlock.NewElection(keeper, "controller"), "slow", func(ctx context.Context, _ *etcdlock.Term) error {
		close(begun)
		<-ctx.Done()
		close(stopping)
		<-finish
		stopped.Store(true)
		return nil
	})
	await(t, "the term", begun)
	c.stand("next")
	stop(errWork)
	await(t, "the end of the context", stopping)
	// As many renewals as it takes to outlast the TTL by far.
	before := c.cluster.Calls("LeaseKeepAlive")
	require.Eventually(t, func() bool { return c.cluster.Calls("LeaseKeepAlive") >= before+6 }, patience, waitABit)
	c.requireWaiting("next")
	require.Equal(t, []string{"slow", "next"}, c.line())
	close(finish)
	c.next("next")
	require.True(t, stopped.Load())
	require.ErrorIs(t, await(t, "the end of Run", returned), errWork)
}

// The leader cannot be reached, and its context ends first.
func TestACutOffLeadersContextEndsBeforeAnotherLeads(t *testing.T) {
	c := newContest(t)
	client, link := c.cluster.Link(t)
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
	c.stand("next")
	link.Blackhole()
	c.next("next")
	require.Error(t, ctx.Err())
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrLost)
	stop(errWork)
	require.ErrorIs(t, await(t, "the end of Run", returned), errWork)
}
