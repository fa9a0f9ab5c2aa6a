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
)

type leading = func(context.Context, *etcdlock.Term) error

// running runs in the background and delivers what it returned. stop ends its context with
// errStop and waits for that.
func running(t *testing.T, e *etcdlock.Election, value string, work leading) (returned <-chan error, stop context.CancelCauseFunc) {
	t.Helper()
	ctx, stop := context.WithCancelCause(within(t))
	c := make(chan error, 1)
	go func() { c <- e.Run(ctx, value, work) }()
	return c, stop
}

// terms is work that hands out each term and then waits for what to return.
type terms struct {
	begun chan *etcdlock.Term
	ctx   chan context.Context
	end   chan error
}

func newTerms() terms {
	return terms{make(chan *etcdlock.Term, 1), make(chan context.Context, 1), make(chan error)}
}

// work returns what it is told to, or its context's error when that ends.
func (w terms) work(ctx context.Context, term *etcdlock.Term) error {
	w.begun <- term
	w.ctx <- ctx
	select {
	case err := <-w.end:
		return err
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), etcdlock.ErrUnlocked) {
			return <-w.end // the test has resigned
		}
		return ctx.Err()
	}
}

// next waits for the next term.
func (w terms) next(t *testing.T) (context.Context, *etcdlock.Term) {
	t.Helper()
	term := await(t, "the next term", w.begun)
	return await(t, "its context", w.ctx), term
}

func finish(t *testing.T, returned <-chan error, stop context.CancelCauseFunc) {
	t.Helper()
	stop(errWork)
	require.ErrorIs(t, await(t, "the end of Run", returned), errWork)
}

func TestRunCampaignsAgainAfterEveryTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	e := etcdlock.NewElection(keep(t, cluster.Client(t)), "controller")
	w := newTerms()
	returned, stop := running(t, e, "a", w.work)
	_, first := w.next(t)
	require.NoError(t, first.Err())
	w.end <- nil
	_, second := w.next(t)
	require.ErrorIs(t, first.Err(), etcdlock.ErrUnlocked)
	require.Greater(t, second.Token(), first.Token())
	finish(t, returned, stop)
	require.ErrorIs(t, second.Err(), etcdlock.ErrUnlocked)
	require.Zero(t, tickets(t, cluster.Client(t)), "it has resigned")
}

func TestTheLeadersContextTellsThatItLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	type ours struct{}
	e := etcdlock.NewElection(keep(t, cluster.Client(t)), "controller")
	ctx := context.WithValue(within(t), ours{}, "value")
	err := e.Run(ctx, "a", func(ctx context.Context, term *etcdlock.Term) error {
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

func TestALeaderMayResignOrTransferAndRunGoesOn(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	w := newTerms()
	returned, stop := running(t, etcdlock.NewElection(keep(t, cluster.Client(t)), "controller"), "a", w.work)
	_, first := w.next(t)
	resign(t, first)
	w.end <- nil
	_, second := w.next(t)
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	require.NoError(t, second.Transfer(within(t), "b"))
	w.end <- context.Canceled // as many a function returns that sees its context end
	other := awaitTerm(t, "the other candidate", waiting)
	awaitLine(t, client, "b", "a")
	resign(t, other)
	_, third := w.next(t)
	require.Greater(t, third.Token(), other.Token())
	finish(t, returned, stop)
}

// Scenario E5.
func TestRunOutlastsFailuresThatMayPass(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	unavailable := status.Error(codes.Unavailable, "a moment, please")
	grants := cluster.Refuse("LeaseGrant", unavailable, embedtest.Once())
	joins := cluster.Refuse("Txn", unavailable, embedtest.Times(2))
	busy := cluster.Refuse("Txn", rpctypes.ErrTooManyRequests, embedtest.Once())
	w := newTerms()
	returned, stop := running(t, etcdlock.NewElection(keep(t, cluster.Client(t)), "controller"), "a", w.work)
	w.next(t)
	require.Equal(t, []int{1, 2, 1}, []int{grants.Bites(), joins.Bites(), busy.Bites()})
	finish(t, returned, stop)
}

// Scenario E5: what Campaign returns as an error, too.
func TestRunCampaignsAgainAfterACampaignThatFailed(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	keeper := keep(t, cluster.Client(t))
	leader := lead(t, candidate(t, cluster), "a")
	w := newTerms()
	returned, stop := running(t, etcdlock.NewElection(keeper, "controller"), "b", w.work)
	for range 3 { // scenario E1
		awaitTickets(t, client, 2)
		s, err := keeper.Session(within(t))
		require.NoError(t, err)
		revoke(t, client, s)
		require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	}
	awaitTickets(t, client, 2)
	require.Empty(t, w.begun, "it never led")
	resign(t, leader)
	_, term := w.next(t)
	require.Equal(t, keyOf(t, client, "b"), term.Key())
	finish(t, returned, stop)
}

// Scenario E5: the session goes in the pause between two terms.
func TestRunCampaignsWithANewSession(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	keeper := keep(t, cluster.Client(t))
	w := newTerms()
	returned, stop := running(t, etcdlock.NewElection(keeper, "controller"), "a", w.work)
	_, first := w.next(t)
	old, err := keeper.Session(within(t))
	require.NoError(t, err)
	w.end <- nil
	awaitTickets(t, cluster.Client(t), 0)
	revoke(t, cluster.Client(t), old)
	_, second := w.next(t)
	require.ErrorIs(t, old.Err(), etcdlock.ErrLost)
	require.NoError(t, second.Err())
	require.Greater(t, second.Token(), first.Token())
	finish(t, returned, stop)
}

// What lead returns after a loss is of no interest: the loss is why.
func TestRunGoesOnAfterALossWhateverTheLeaderReturns(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	keeper := keep(t, cluster.Client(t))
	w := newTerms()
	returned, stop := running(t, etcdlock.NewElection(keeper, "controller"), "a", w.work)
	ctx, _ := w.next(t)
	s, err := keeper.Session(within(t))
	require.NoError(t, err)
	revoke(t, client, s)
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	await(t, "the context", ctx.Done())
	require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrLost)

	_, term := w.next(t)
	remove(t, client, term.Key())
	require.ErrorIs(t, term.Proclaim(within(t), "b"), etcdlock.ErrLost)
	select {
	case w.end <- errWork:
	case <-term.Done(): // it may have returned by itself
	}
	w.next(t)
	finish(t, returned, stop)
}
