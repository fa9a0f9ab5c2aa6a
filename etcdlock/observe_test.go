package etcdlock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// observer returns an election that has had no reason to create a session yet.
func observer(t *testing.T, cluster *embedtest.Cluster) *etcdlock.Election {
	t.Helper()
	return etcdlock.NewElection(session.Keep(cluster.Client(t)), "controller")
}

// Scenario E4.
func TestObserveTellsEveryChangeInOrder(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	truth := watchHistory(t, client)
	seen := observing(within(t), observer(t, cluster), "end")
	require.True(t, await(t, "the present state", seen.first).Vacant())
	leases, err := client.Leases(within(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "it needs no session")

	one, two := candidate(t, cluster), candidate(t, cluster)
	for i := range 20 { // swapping quickly, with a vacancy and without
		first := lead(t, one, "one "+strconv.Itoa(i))
		require.NoError(t, first.Proclaim(within(t), "one, again"))
		require.NoError(t, first.Proclaim(within(t), "one, again"), "which is no change")
		next := inLine(t, client, two, "two "+strconv.Itoa(i), 2)
		resign(t, first)
		resign(t, awaitTerm(t, "the other", next))
		// What is compacted before it has been told cannot be told.
		require.Eventually(t, func() bool { return seen.count.Load() == int64(1+4*(i+1)) }, patience, time.Millisecond)
		_, err := cluster.Compact(within(t))
		require.NoError(t, err)
	}
	lead(t, one, "end")
	want := truth.until(t, "end")
	require.Len(t, want, 20*4+2)
	require.Equal(t, want, await(t, "the observer", seen.all))
}

// Scenario E4.
func TestObserveLeavesNothingOutBecauseOfTheNetwork(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*embedtest.Link){
		"cut":        func(l *embedtest.Link) { l.Cut() },
		"black hole": func(l *embedtest.Link) { l.Blackhole() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			truth := watchHistory(t, cluster.Client(t))
			client, link := cluster.Link(t)
			seen := observing(within(t), etcdlock.NewElection(session.Keep(client), "controller"), "end")
			await(t, "the present state", seen.first)
			e := candidate(t, cluster)
			for i := range 3 {
				fault(link)
				for range 3 {
					resign(t, lead(t, e, strconv.Itoa(i)))
				}
				link.Heal()
			}
			lead(t, e, "end")
			require.Equal(t, truth.until(t, "end"), await(t, "the observer", seen.all))
		})
	}
}

// Scenario E4: what is compacted cannot be told, but how things stand then is.
func TestObserveGoesOnAfterACompactionOfWhatItMissed(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	truth := watchHistory(t, cluster.Client(t))
	client, link := cluster.Link(t)
	seen := observing(within(t), etcdlock.NewElection(session.Keep(client), "controller"), "end")
	await(t, "the present state", seen.first)
	e := candidate(t, cluster)
	link.Cut()
	for range 5 {
		resign(t, lead(t, e, "missed"))
	}
	last := lead(t, e, "stays")
	_, err := cluster.Compact(within(t))
	require.NoError(t, err)
	before := cluster.Calls("Watch")
	link.Heal()
	awaitWatch(t, cluster, before)
	resign(t, last)
	lead(t, e, "end")
	require.Subset(t, truth.until(t, "end"), await(t, "the observer", seen.all))
}

// Scenario E4.
func TestObserveOutlastsMembersAndLeadersOfEtcd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithSize(3))
	truth := watchHistory(t, cluster.Client(t))
	seen := observing(within(t), observer(t, cluster), "end")
	await(t, "the present state", seen.first)
	e := candidate(t, cluster)
	for i, m := range cluster.Members() {
		term := lead(t, e, strconv.Itoa(i))
		require.NoError(t, cluster.MoveLeader(within(t), m))
		require.NoError(t, m.Restart())
		resign(t, term)
	}
	lead(t, e, "end")
	require.Equal(t, truth.until(t, "end"), await(t, "the observer", seen.all))
}

func TestObserveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithCancel(within(t))
	seen := observing(ctx, observer(t, cluster), "end")
	await(t, "the present state", seen.first)
	cancel()
	require.Len(t, await(t, "the end", seen.all), 1)
	require.Empty(t, await(t, "the end", observing(cancelled(), observer(t, cluster), "end").all))
}

func TestObserveTellsOnceThatTheNameIsInvalid(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var told []error
	for _, err := range etcdlock.NewElection(session.Keep(cluster.Client(t)), "").Observe(within(t)) {
		told = append(told, err)
	}
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], etcdlock.ErrInvalidName)
}

func TestObserveTellsThatEtcdRefusesAndGoesOn(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	refusal := cluster.Refuse("Range", rpctypes.ErrPermissionDenied, embedtest.Times(2), embedtest.When(func(message any) bool {
		return !message.(*etcdserverpb.RangeRequest).CountOnly // which only finds out what is not permitted
	}))
	refused := 0
	for leader, err := range observer(t, cluster).Observe(within(t)) {
		require.True(t, leader.Vacant())
		if err == nil {
			break
		}
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		refused++
	}
	require.Equal(t, 2, refused)
	require.Equal(t, 2, refusal.Bites())
}
