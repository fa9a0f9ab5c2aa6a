package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// runner is a Run in the background. It hands out each term, and then waits for what to return.
type runner struct {
	t        *testing.T
	keeper   *session.Keeper
	returned <-chan error
	stop     context.CancelCauseFunc // ends Run's context

	begun chan led
	end   chan error
}

// led is a term, with the context that Run gives to the leader.
type led struct {
	*etcdlock.Term
	ctx context.Context
}

// run runs a candidate on a keeper of its own.
func (c *contest) run(value string, opts ...etcdlock.Option) *runner {
	c.t.Helper()
	r := &runner{t: c.t, keeper: c.keeper(), begun: make(chan led, 1), end: make(chan error)}
	r.returned, r.stop = running(c.t, etcdlock.NewElection(r.keeper, "controller", opts...), value, r.work)
	return r
}

// running runs in the background and delivers what was returned. stop ends its context.
func running(t *testing.T, e *etcdlock.Election, value string, work func(context.Context, *etcdlock.Term) error) (returned <-chan error, stop context.CancelCauseFunc) {
	ctx, stop := context.WithCancelCause(within(t))
	return background(func() error { return e.Run(ctx, value, work) }), stop
}

// work returns what it is told to, or its context's error when that ends.
func (r *runner) work(ctx context.Context, term *etcdlock.Term) error {
	r.begun <- led{term, ctx}
	select {
	case err := <-r.end:
		return err
	case <-ctx.Done():
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, etcdlock.ErrUnlocked):
			return <-r.end // the test has resigned
		case errors.Is(cause, etcdlock.ErrUnhealthy), errors.Is(cause, etcdlock.ErrLost):
			return errSick // which is not taken for the work's own error
		}
		return ctx.Err()
	}
}

// next waits for the next term.
func (r *runner) next() led {
	r.t.Helper()
	return await(r.t, "the next term", r.begun)
}

// finish ends Run.
func (r *runner) finish() {
	r.t.Helper()
	r.stop(errWork)
	require.ErrorIs(r.t, await(r.t, "the end of Run", r.returned), errWork)
}

func TestRunCampaignsAgainHoweverATermEnds(t *testing.T) {
	c := newContest(t)
	r := c.run("a")
	last := etcdlock.Token(0)
	for _, end := range []func(term led){
		func(led) { r.end <- nil },
		func(term led) { resign(t, term.Term); r.end <- nil },
		func(term led) {
			c.stand("b")
			require.NoError(t, term.Transfer(within(t), "b"))
			r.end <- context.Canceled // as many a function returns that sees its context end
			other := c.next("b")
			c.awaitLine("b", "a")
			resign(t, other)
		},
		func(term led) {
			lose(t, c.client, current(t, r.keeper))
			await(t, "the context", term.ctx.Done())
			require.ErrorIs(t, context.Cause(term.ctx), etcdlock.ErrLost)
		},
		func(term led) {
			remove(t, c.client, term.Key())
			require.ErrorIs(t, term.Proclaim(within(t), "b"), etcdlock.ErrLost)
		},
	} {
		term := r.next()
		require.NoError(t, term.Err())
		require.Greater(t, term.Token(), last)
		last = term.Token()
		end(term)
	}
	term := r.next()
	r.finish()
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	require.Zero(t, tickets(t, c.client), "it has resigned")
}

func TestTheLeadersContextTellsThatItLeads(t *testing.T) {
	c := newContest(t)
	type ours struct{}
	ctx := context.WithValue(within(t), ours{}, "value")
	err := etcdlock.NewElection(c.keeper(), "controller").Run(ctx, "a", func(ctx context.Context, term *etcdlock.Term) error {
		require.Equal(t, "value", ctx.Value(ours{}))
		require.NoError(t, etcdlock.RequireHeld(ctx, "controller"))
		require.ErrorIs(t, etcdlock.RequireHeld(ctx, "another"), etcdlock.ErrNotHeld)
		require.NoError(t, term.Resign(ctx))
		await(t, "the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrUnlocked)
		require.ErrorIs(t, etcdlock.RequireHeld(ctx, "controller"), etcdlock.ErrUnlocked)
		return errWork
	})
	require.ErrorIs(t, err, errWork)
}

func TestRunOutlastsFailuresThatMayPass(t *testing.T) {
	c := newContest(t)
	unavailable := status.Error(codes.Unavailable, "a moment, please")
	grants := c.cluster.Refuse("LeaseGrant", unavailable, embedtest.Once())
	joins := c.cluster.Refuse("Txn", unavailable, embedtest.Times(2))
	busy := c.cluster.Refuse("Txn", rpctypes.ErrTooManyRequests, embedtest.Once())
	r := c.run("a")
	r.next()
	require.Equal(t, []int{1, 2, 1}, []int{grants.Bites(), joins.Bites(), busy.Bites()})
	r.finish()
}

// What Campaign returns as an error, too.
func TestRunCampaignsAgainAfterACampaignThatFailed(t *testing.T) {
	c := newContest(t)
	leader := c.lead("a")
	r := c.run("b")
	for range 3 {
		awaitTickets(t, c.client, 2)
		lose(t, c.client, current(t, r.keeper))
	}
	awaitTickets(t, c.client, 2)
	require.Empty(t, r.begun, "it never led")
	resign(t, leader)
	require.Equal(t, c.keyOf("b"), r.next().Key())
	r.finish()
}
