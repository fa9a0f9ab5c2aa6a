package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// What a candidate and a leader have in common with all other waiters and holders is in the conformance suite.

func TestLeaderAndCandidatesAreTold(t *testing.T) {
	c := newContest(t)
	e := c.candidate()
	_, err := e.Leader(within(t))
	require.ErrorIs(t, err, etcdlock.ErrNoLeader)
	require.ErrorContains(t, err, `leader "controller"`)
	requireCandidates := func(want ...string) []etcdlock.Leader {
		t.Helper()
		waiting, err := e.Candidates(within(t))
		require.NoError(t, err)
		require.Equal(t, want, values(waiting))
		return waiting
	}
	requireCandidates()

	term := lead(t, e, "a")
	requireCandidates()
	c.stand("b", etcdlock.WithPriority(7))
	c.stand("c")
	waiting := requireCandidates("b", "c")
	require.Equal(t, 7, waiting[0].Priority)
	require.Less(t, waiting[0].Token, waiting[1].Token)
	now, err := c.candidate().Leader(within(t))
	require.NoError(t, err)
	require.Equal(t, leader(term, "a"), now)
	_, err = e.Campaign(cancelled(), "d")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `campaign "controller"`)
}

// The candidate finds its key gone before its session has heard of the loss.
func TestACandidateWhoseLeaseIsGoneDoesNotLeadWithoutAKey(t *testing.T) {
	c := newContest(t)
	leader := c.lead("a")
	s, keeper := newSession(t, c.cluster.Client(t)), keep(t, c.cluster.Client(t))
	lost := c.standOn(etcdlock.NewElection(s, "controller"), "b")
	c.standOn(etcdlock.NewElection(keeper, "controller"), "c")
	revoke(t, c.client, s)
	revoke(t, c.client, current(t, keeper))
	require.Equal(t, []string{"a"}, c.line())

	resign(t, leader)
	require.ErrorIs(t, await(t, "the candidate without a keeper", lost).err, etcdlock.ErrLost)
	require.Equal(t, c.next("c").Key(), c.keyOf("c"), "on a new key")
}

func TestACandidateWhoseKeyIsDeletedIsInLineAgainAtTheEnd(t *testing.T) {
	c := newContest(t)
	first := c.lead("a")
	c.stand("b")
	c.stand("c")
	remove(t, c.client, c.keyOf("b"))
	resign(t, first)
	second := c.next("c")
	c.awaitLine("c", "b")
	c.requireWaiting("b")
	resign(t, second)
	third := c.next("b")
	require.Equal(t, c.keyOf("b"), third.Key())
	require.Greater(t, third.Token(), second.Token())
	_, err := third.Txn(within(t)).Then(clientv3.OpPut("work", "")).Commit()
	require.NoError(t, err)
}

func TestProclaimChangesTheValueAndNothingElse(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		e := c.candidate()
		term := lead(t, e, "a")
		c.stand("b")
		entries := c.cluster.AppliedIndex()
		require.NoError(t, term.Proclaim(within(t), "a, now at another address"))
		require.Equal(t, entries+1, c.cluster.AppliedIndex(), "one raft entry")
		now, err := e.Leader(within(t))
		require.NoError(t, err)
		require.Equal(t, leader(term, "a, now at another address"), now)

		lost := c.cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(creates))
		require.NoError(t, term.Proclaim(within(t), "again"))
		require.Equal(t, 1, lost.Bites())
		require.Equal(t, []string{"again", "b"}, c.line())
		require.NoError(t, term.Err())
		c.requireWaiting("b")
		require.NotZero(t, inspect(t, c.client, "controller").Places[0].Lease, "the value is still bound to the session")
	})
}

// heldUp makes a call whose write does not arrive before the call has been given up. It arrives
// when the function that it returns is called, which waits for that.
func heldUp(t *testing.T, cluster *embedtest.Cluster, call func(context.Context) error) (arrive func()) {
	t.Helper()
	held := cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
	ctx, cancel := context.WithCancel(within(t))
	called := background(func() error { return call(ctx) })
	await(t, "the request", held.Bitten())
	cancel()
	require.ErrorIs(t, await(t, "the end of the call", called), context.Canceled)
	return func() {
		t.Helper()
		entries := cluster.AppliedIndex()
		held.Heal()
		require.Eventually(t, func() bool { return cluster.AppliedIndex() > entries }, patience, waitABit)
	}
}

func TestAnOldLeaderCannotProclaim(t *testing.T) {
	c := newContest(t)
	keeper := keep(t, c.client)
	e := etcdlock.NewElection(keeper, "controller")
	old := lead(t, e, "a")
	revoke(t, c.client, current(t, keeper))
	next := lead(t, e, "b")
	require.ErrorIs(t, old.Proclaim(within(t), "a2"), etcdlock.ErrLost)
	require.Equal(t, []string{"b"}, c.line())

	remove(t, c.client, next.Key())
	third := lead(t, e, "c")
	err := next.Proclaim(within(t), "b2")
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, `proclaim "controller"`)
	require.ErrorIs(t, next.Err(), etcdlock.ErrLost, "and it knows now")
	require.Equal(t, []string{"c"}, c.line())

	resign(t, third)
	require.ErrorIs(t, third.Proclaim(within(t), "c2"), etcdlock.ErrUnlocked)
	require.Empty(t, c.line())
}

// Candidates of ours and of etcd's own package, which are in one line at a raw prefix.
func TestCandidatesOfBothKindsLeadInOrderAndReadEachOther(t *testing.T) {
	c := newContest(t)
	ours := newSession(t, c.cluster.Client(t))
	e := etcdlock.NewElection(ours, "etcdlock/controller", etcdlock.AtPrefix())
	s, err := concurrency.NewSession(c.client)
	require.NoError(t, err)
	theirs := concurrency.NewElection(s, "etcdlock/controller")
	ctx := within(t)
	told := theirs.Observe(ctx)
	seen := observing(ctx, e, "ours 2")
	await(t, "the present state", seen.first)

	term := lead(t, e, "ours 1")
	answer, err := theirs.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "ours 1", string(answer.Kvs[0].Value))
	require.Equal(t, term.Key(), string(answer.Kvs[0].Key))
	require.Equal(t, "ours 1", string(await(t, "their observer", told).Kvs[0].Value))

	led := background(func() error { return theirs.Campaign(ctx, "theirs") })
	awaitTickets(t, c.client, 2)
	c.standOn(e, "ours 2")
	resign(t, term)
	require.NoError(t, await(t, "theirs", led))
	c.requireWaiting("ours 2")
	leader, err := e.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, etcdlock.Leader{Value: "theirs", Key: theirs.Key(), Token: etcdlock.Token(theirs.Rev())}, leader)

	_, err = c.client.Revoke(ctx, s.Lease()) // theirs crashes
	require.NoError(t, err)
	require.NoError(t, c.next("ours 2").Err())
	require.Equal(t, []string{"", "ours 1", "theirs", "ours 2"}, values(await(t, "our observer", seen.all)))

	led, s = c.standForeign("theirs, again")
	require.Empty(t, led)
	revoke(t, c.client, ours) // and ours does
	require.NoError(t, await(t, "theirs", led))
	require.NoError(t, s.Close())
}
