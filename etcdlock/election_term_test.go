package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Scenario H6, for a leader.
func TestATermEndsWithItsLease(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	term := lead(t, etcdlock.NewElection(s, "controller"), "a")
	revoke(t, cluster.Client(t), s)
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	await(t, "the end of the term", term.Done())
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, context.Cause(term.Context()), etcdlock.ErrLost)
	require.ErrorIs(t, term.Resign(within(t)), etcdlock.ErrLost)
}

// Scenario H7, for a leader.
func TestATermEndsWithItsKey(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	before := cluster.Calls("Watch")
	term := lead(t, candidate(t, cluster), "a")
	awaitWatch(t, cluster, before)
	remove(t, cluster.Client(t), term.Key())
	await(t, "the end of the term", term.Done())
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
}

func TestAnOldLeadersTransactionIsRefused(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	old := lead(t, candidate(t, cluster), "a")
	work := func(term *etcdlock.Term, value string) error {
		_, err := term.Txn(within(t)).Then(clientv3.OpPut("work", value)).Commit()
		return err
	}
	require.NoError(t, work(old, "a"))
	remove(t, client, old.Key())
	next := lead(t, candidate(t, cluster), "b")
	require.NoError(t, old.Err(), "it has not been told")
	require.NoError(t, work(next, "b"))
	require.ErrorIs(t, work(old, "a"), etcdlock.ErrLost)
	answer, err := client.Get(within(t), "work")
	require.NoError(t, err)
	require.Equal(t, "b", string(answer.Kvs[0].Value))
	require.ErrorIs(t, old.Err(), etcdlock.ErrLost)
}

func TestProclaimChangesTheValueAndNothingElse(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := candidate(t, cluster)
	term := lead(t, e, "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	entries := cluster.AppliedIndex()
	require.NoError(t, term.Proclaim(within(t), "a, now at another address"))
	require.Equal(t, entries+1, cluster.AppliedIndex(), "one raft entry")
	leader, err := e.Leader(within(t))
	require.NoError(t, err)
	require.Equal(t, etcdlock.Leader{Value: "a, now at another address", Key: term.Key(), Token: term.Token()}, leader)

	loseOneReply(t, cluster, creates, nil)
	require.NoError(t, term.Proclaim(within(t), "again"))
	require.Equal(t, []string{"again", "b"}, valuesInLine(t, client))
	require.NoError(t, term.Err())
	stillWaiting(t, waiting)

	answer, err := client.Get(within(t), term.Key())
	require.NoError(t, err)
	require.NotZero(t, answer.Kvs[0].Lease, "the value is still bound to the session")
}

// A request without an answer arrives when the next value has been confirmed.
func TestALateProclaimDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	held := cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		_ = held.Wait(ctx)
		cancel()
	}()
	require.ErrorIs(t, term.Proclaim(ctx, "b"), context.Canceled)
	require.NoError(t, term.Proclaim(within(t), "c"))
	entries := cluster.AppliedIndex()
	held.Heal()
	require.Eventually(t, func() bool { return cluster.AppliedIndex() > entries }, patience, time.Millisecond)
	require.Equal(t, []string{"c"}, valuesInLine(t, client))
	resign(t, term)
}

func TestAnOldLeaderCannotProclaim(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	keeper := keep(t, client)
	e := etcdlock.NewElection(keeper, "controller")
	old := lead(t, e, "a")
	s, err := keeper.Session(within(t))
	require.NoError(t, err)
	revoke(t, client, s)
	next := lead(t, e, "b")
	require.ErrorIs(t, old.Proclaim(within(t), "a2"), etcdlock.ErrLost)
	require.Equal(t, []string{"b"}, valuesInLine(t, client))

	remove(t, client, next.Key())
	third := lead(t, e, "c")
	err = next.Proclaim(within(t), "b2")
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, `proclaim "controller"`)
	require.ErrorIs(t, next.Err(), etcdlock.ErrLost, "and it knows now")
	require.Equal(t, []string{"c"}, valuesInLine(t, client))

	resign(t, third)
	require.ErrorIs(t, third.Proclaim(within(t), "c2"), etcdlock.ErrUnlocked)
	require.Empty(t, valuesInLine(t, client))
}

// Scenario E2.
func TestResigningWithACancelledContextResigns(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	require.NoError(t, term.Resign(cancelled()))
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	resign(t, awaitTerm(t, "the next candidate", waiting))
}

// Scenario E2: etcd does not answer either.
func TestAnUnconfirmedResignationGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := newSession(t, client)
	term := lead(t, etcdlock.NewElection(s, "controller"), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	silence := cluster.LoseRequest("Txn", embedtest.When(retires))
	require.ErrorIs(t, term.Resign(cancelled()), context.Canceled)
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	require.NoError(t, term.Resign(within(t)), "the second call does nothing")
	stillWaiting(t, waiting)
	silence.Heal()
	awaitTerm(t, "the next candidate", waiting)
	require.NoError(t, s.Err(), "it was not the end of the session")
}

func TestTheSecondResignationDoesNothing(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := candidate(t, cluster)
	first := lead(t, e, "a")
	resign(t, first)
	second := lead(t, e, "b")
	require.Equal(t, first.Key(), second.Key(), "so a delete by name would hit it")
	require.NoError(t, first.Resign(within(t)))
	require.Equal(t, []string{"b"}, valuesInLine(t, client))
	require.NoError(t, second.Err())
}

// Scenario R10, for a leader.
func TestResigningAfterALossSaysSoAndLeavesTheNextLeaderAlone(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := candidate(t, cluster)
	old := lead(t, e, "a")
	remove(t, client, old.Key())
	next := lead(t, e, "b")
	require.ErrorIs(t, old.Resign(within(t)), etcdlock.ErrLost)
	require.Equal(t, []string{"b"}, valuesInLine(t, client))
	require.NoError(t, next.Err())
}

func TestClosingTheSessionEndsTheTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	term := lead(t, etcdlock.NewElection(keeper, "controller"), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	require.NoError(t, keeper.Close(within(t)))
	require.ErrorIs(t, term.Err(), etcdlock.ErrClosed)
	awaitTerm(t, "the next candidate", waiting)
}
