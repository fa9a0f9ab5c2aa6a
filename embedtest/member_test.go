package embedtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

func TestRestartKeepsData(t *testing.T) {
	for name, stop := range map[string]func(*embedtest.Member){
		"after stop":    (*embedtest.Member).Stop,
		"after kill":    (*embedtest.Member).Kill,
		"while running": func(*embedtest.Member) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := embedtest.Start(t)
			client, m := c.Client(t), c.Members()[0]
			put(t, client, "k", "v")
			stop(m)
			require.NoError(t, m.Restart())
			require.Equal(t, "v", get(t, client, "k"))
		})
	}
}

func TestDownMemberDoesNotServe(t *testing.T) {
	for name, stop := range map[string]func(*embedtest.Member){
		"stop": (*embedtest.Member).Stop, "kill": (*embedtest.Member).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			c := embedtest.Start(t)
			client, m := c.Client(t), c.Members()[0]
			put(t, client, "k", "v")
			stop(m)
			stop(m)
			require.Nil(t, m.Server())
			_, err := client.Put(within(t, 100*time.Millisecond), "k", "w")
			require.Error(t, err)
		})
	}
}

func TestStopHandsTheLeadershipOver(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	old := c.Leader()
	old.Stop()
	leader, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	require.NotEqual(t, old, leader)
	require.Contains(t, c.Log(), "leadership transfer finished")
}

func TestClusterSurvivesTheLossOfItsLeader(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	old := c.Leader()
	old.Kill()
	require.NotContains(t, c.Log(), "leadership transfer starting")
	leader, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	require.NotEqual(t, old, leader)
	put(t, c.Client(t), "k", "v")
	require.NoError(t, old.Restart())
	require.Equal(t, "v", get(t, old.Client(t), "k"))
}

func TestRestartWithoutQuorumDoesNotWait(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	put(t, c.Client(t), "k", "v")
	for _, m := range c.Members() {
		m.Kill()
	}
	require.NoError(t, c.Members()[0].Restart())
	require.Nil(t, c.Leader())
	require.NoError(t, c.Members()[1].Restart())
	require.Equal(t, "v", get(t, c.Client(t), "k"))
}

func TestMembersRestartOneByOne(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	client := c.Client(t)
	for _, m := range c.Members() {
		put(t, client, "last", m.Name())
		require.NoError(t, m.Restart())
	}
	require.Equal(t, "m2", get(t, client, "last"))
}

func TestMembersMayBeOrderedAboutConcurrently(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	var orders sync.WaitGroup
	for _, m := range c.Members()[:2] {
		for _, order := range []func(){m.Stop, m.Kill, m.Isolate, m.Heal, func() { _ = m.Restart() }} {
			orders.Go(order)
		}
	}
	orders.Wait()
	for _, m := range c.Members() {
		m.Heal()
		require.NoError(t, m.Restart())
	}
	put(t, c.Client(t), "k", "v")
}

// isolated reports whether the member cannot reach a quorum.
func requireIsolated(t *testing.T, m *embedtest.Member) {
	t.Helper()
	_, err := m.Client(t).Put(within(t, 300*time.Millisecond), "isolated", m.Name())
	require.Error(t, err)
}

func TestIsolationCutsAMemberOffUntilHealed(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	old := c.Leader()
	old.Isolate()
	leader, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	require.NotEqual(t, old, leader)
	put(t, leader.Client(t), "k", "v")
	requireIsolated(t, old)

	stale, err := old.Client(t).Get(within(t, patience), "k", clientv3.WithSerializable())
	require.NoError(t, err)
	require.Empty(t, stale.Kvs)

	old.Heal()
	require.Equal(t, "v", get(t, old.Client(t), "k"))
}

func TestIsolationSurvivesRestarts(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	lonely := c.Members()[2]
	lonely.Isolate()
	for _, m := range c.Members() {
		require.NoError(t, m.Restart())
	}
	put(t, c.Members()[0].Client(t), "k", "v")
	requireIsolated(t, lonely)
	lonely.Heal()
	require.Equal(t, "v", get(t, lonely.Client(t), "k"))
}

func TestHealingOneOfTwoIsolatedMembersKeepsTheOther(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	m := c.Members()
	m[1].Isolate()
	m[2].Isolate()
	requireIsolated(t, m[0])
	m[1].Heal()
	put(t, m[0].Client(t), "k", "v")
	requireIsolated(t, m[2])
}

func TestMoveLeaderMakesThatMemberTheLeader(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	for _, m := range c.Members() {
		require.NoError(t, c.MoveLeader(within(t, patience), m))
		require.Equal(t, m, c.Leader())
	}
	down := c.Members()[0]
	down.Kill()
	require.Error(t, c.MoveLeader(within(t, patience), down))
}

func TestMoveLeaderToAnUnreachableMemberEndsWithItsContext(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	require.NoError(t, c.MoveLeader(within(t, patience), c.Members()[0]))
	unreachable := c.Members()[2]
	unreachable.Isolate()
	err := c.MoveLeader(within(t, short), unreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCompactDiscardsEarlierRevisions(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	put(t, client, "k", "old")
	put(t, client, "k", "new")
	revision, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	_, err = client.Get(within(t, patience), "k", clientv3.WithRev(revision-1))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	require.Equal(t, "new", get(t, client, "k"))

	again, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	require.Equal(t, revision, again)
}

func TestAppliedIndexCountsWrites(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	before := c.AppliedIndex()
	get(t, client, "k")
	require.Equal(t, before, c.AppliedIndex())
	put(t, client, "k", "v")
	put(t, client, "k", "w")
	require.Equal(t, before+2, c.AppliedIndex())
}

func TestClientFindsARestartedMember(t *testing.T) {
	c := embedtest.Start(t)
	client, m := c.Client(t), c.Members()[0]
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	<-watch
	m.Kill()
	require.NoError(t, m.Restart())
	put(t, client, "k", "v")
	answer := <-watch
	require.NoError(t, answer.Err())
	require.Len(t, answer.Events, 1)
	require.NoError(t, context.Cause(client.Ctx()))
}
