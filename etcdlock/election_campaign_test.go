package etcdlock_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestCandidatesLeadInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "0")
	var waiting []<-chan campaigned
	for i := 1; i < 5; i++ {
		waiting = append(waiting, inLine(t, client, candidate(t, cluster), strconv.Itoa(i), i+1))
	}
	for i, next := range waiting {
		for _, later := range waiting[i:] {
			stillWaiting(t, later)
		}
		before := term.Token()
		resign(t, term)
		term = awaitTerm(t, "the next candidate", next)
		require.Greater(t, term.Token(), before)
		leader, err := candidate(t, cluster).Leader(within(t))
		require.NoError(t, err)
		require.Equal(t, etcdlock.Leader{Value: strconv.Itoa(i + 1), Key: term.Key(), Token: term.Token()}, leader)
	}
	resign(t, term)
	require.Zero(t, tickets(t, client))
}

func TestLeaderAndCandidatesAreTold(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := candidate(t, cluster)
	_, err := e.Leader(within(t))
	require.ErrorIs(t, err, etcdlock.ErrNoLeader)
	require.ErrorContains(t, err, `leader "controller"`)
	none, err := e.Candidates(within(t))
	require.NoError(t, err)
	require.Empty(t, none)

	lead(t, e, "a")
	none, err = e.Candidates(within(t))
	require.NoError(t, err)
	require.Empty(t, none)
	inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(7)), "b", 2)
	inLine(t, client, candidate(t, cluster), "c", 3)
	waiting, err := e.Candidates(within(t))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "c"}, values(waiting))
	require.Equal(t, 7, waiting[0].Priority)
	require.Less(t, waiting[0].Token, waiting[1].Token)
}

// Scenario W6, for a candidate.
func TestACampaignWhoseContextEndsLeavesNothing(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	_, err := candidate(t, cluster).Campaign(cancelled(), "a")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `campaign "controller"`)
	require.Zero(t, tickets(t, client))

	leader := lead(t, candidate(t, cluster), "a")
	ctx, cancel := context.WithCancel(within(t))
	waiting := campaigning(ctx, candidate(t, cluster), "b")
	awaitLine(t, client, "a", "b")
	cancel()
	require.ErrorIs(t, await(t, "the candidate", waiting).err, context.Canceled)
	awaitLine(t, client, "a")
	require.NoError(t, leader.Err())
}

// Scenario W6: a term, or an error and no key.
func TestACampaignThatRacesItsContextEitherLeadsOrLeavesNothing(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	first, second := candidate(t, cluster), candidate(t, cluster)
	for range 30 {
		term := lead(t, first, "a")
		ctx, cancel := context.WithCancel(within(t))
		waiting := campaigning(ctx, second, "b")
		awaitTickets(t, client, 2)
		go cancel()
		resign(t, term)
		r := await(t, "the candidate", waiting)
		if r.err == nil {
			require.Equal(t, []string{"b"}, valuesInLine(t, client))
			resign(t, r.term)
		} else {
			require.ErrorIs(t, r.err, context.Canceled)
		}
		awaitTickets(t, client, 0)
	}
}

// Scenarios E1 and W1.
func TestACandidateWhoseSessionIsLostGetsAnErrorAndNeverLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	leader := lead(t, candidate(t, cluster), "a")
	s := newSession(t, cluster.Client(t))
	waiting := inLine(t, client, etcdlock.NewElection(s, "controller"), "b", 2)
	revoke(t, client, s)
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, await(t, "the candidate", waiting).err, etcdlock.ErrLost)
	require.NoError(t, leader.Err())
	require.Equal(t, []string{"a"}, valuesInLine(t, client))
}

// Scenario E1: the candidate finds its key gone before its session has heard of the loss.
func TestACandidateWhoseLeaseIsGoneDoesNotLeadWithoutAKey(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	leader := lead(t, candidate(t, cluster), "a")
	s := newSession(t, cluster.Client(t))
	keeper := keep(t, cluster.Client(t))
	lost := inLine(t, client, etcdlock.NewElection(s, "controller"), "b", 2)
	kept := inLine(t, client, etcdlock.NewElection(keeper, "controller"), "c", 3)
	revoke(t, client, s)
	renewed, err := keeper.Session(within(t))
	require.NoError(t, err)
	revoke(t, client, renewed)
	require.Equal(t, []string{"a"}, valuesInLine(t, client))

	resign(t, leader)
	require.ErrorIs(t, await(t, "the candidate without a keeper", lost).err, etcdlock.ErrLost)
	term := awaitTerm(t, "the candidate with a keeper", kept)
	require.Equal(t, keyOf(t, client, "c"), term.Key(), "on a new key")
}

// Scenario W2, for a candidate.
func TestACandidateWhoseKeyIsDeletedIsInLineAgainAtTheEnd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	first := lead(t, candidate(t, cluster), "a")
	robbed := inLine(t, client, candidate(t, cluster), "b", 2)
	next := inLine(t, client, candidate(t, cluster), "c", 3)
	remove(t, client, keyOf(t, client, "b"))
	resign(t, first)
	second := awaitTerm(t, "the one behind", next)
	awaitLine(t, client, "c", "b")
	stillWaiting(t, robbed)
	resign(t, second)
	third := awaitTerm(t, "the one whose key was deleted", robbed)
	require.Equal(t, keyOf(t, client, "b"), third.Key())
	require.Greater(t, third.Token(), second.Token())
	_, err := third.Txn(within(t)).Then(clientv3.OpPut("work", "")).Commit()
	require.NoError(t, err)
}

// Scenario R1, for a candidate.
func TestALostReplyToAJoinMakesOneCandidate(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	loseOneReply(t, cluster, creates, nil)
	first := lead(t, candidate(t, cluster), "a")
	require.Equal(t, []string{"a"}, valuesInLine(t, client))
	loseOneReply(t, cluster, creates, nil)
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	resign(t, first)
	resign(t, awaitTerm(t, "the candidate", waiting))
	require.Zero(t, tickets(t, client))
}

// Scenario W3, E21128: there the candidate "leads" beside the leader.
func TestACandidateDoesNotLeadBecauseOfACompaction(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	leader := lead(t, candidate(t, cluster), "a")
	behind, link := cluster.Link(t)
	before := cluster.Calls("Watch")
	waiting := inLine(t, client, etcdlock.NewElection(newSession(t, behind), "controller"), "b", 2)
	awaitWatch(t, cluster, before)
	for range 3 {
		link.Cut()
		for range 10 {
			require.NoError(t, leader.Proclaim(within(t), "a"))
		}
		_, err := cluster.Compact(within(t))
		require.NoError(t, err)
		before = cluster.Calls("Watch")
		link.Heal()
		awaitWatch(t, cluster, before)
	}
	stillWaiting(t, waiting)
	require.Equal(t, []string{"a", "b"}, valuesInLine(t, client))
	resign(t, leader)
	require.NoError(t, awaitTerm(t, "the candidate", waiting).Err())
}

// Scenario H12, for candidates.
func TestCandidatesOfOneSessionExcludeEachOther(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := newSession(t, client)
	one, two := etcdlock.NewElection(s, "controller"), etcdlock.NewElection(s, "controller")
	first := lead(t, one, "a")
	second := inLine(t, client, one, "b", 2)
	third := inLine(t, client, two, "c", 3)
	stillWaiting(t, second)
	resign(t, first)
	term := awaitTerm(t, "the second", second)
	stillWaiting(t, third)
	resign(t, term)
	resign(t, awaitTerm(t, "the third", third))
}

func TestALeaderAndAMutexOfThatNameExcludeEachOther(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	m := etcdlock.NewMutex(newSession(t, client), "controller")
	term := lead(t, candidate(t, cluster), "a")
	_, err := m.TryLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	locked := locking(within(t), m)
	awaitTickets(t, client, 2)
	waiting := inLine(t, client, candidate(t, cluster), "b", 3)
	resign(t, term)
	r := await(t, "the lock", locked)
	require.NoError(t, r.err)
	require.Greater(t, r.hold.Token(), term.Token())
	stillWaiting(t, waiting)
	unlock(t, r.hold)
	require.Greater(t, awaitTerm(t, "the candidate", waiting).Token(), r.hold.Token())
}
