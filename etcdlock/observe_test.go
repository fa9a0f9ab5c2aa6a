package etcdlock_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// observer returns an election that has had no reason to create a session yet.
func observer(client *clientv3.Client) *etcdlock.Election {
	return etcdlock.NewElection(session.Keep(client), "controller")
}

// observed observes through client, from the beginning until there is a leader called "end".
func (c *contest) observed(client *clientv3.Client) observation {
	c.t.Helper()
	seen := observing(within(c.t), observer(client), "end")
	require.True(c.t, await(c.t, "the present state", seen.first).Vacant())
	return seen
}

func TestObserveTellsEveryChangeInOrder(t *testing.T) {
	c := newContest(t)
	seen := c.observed(c.cluster.Client(t))
	leases, err := c.client.Leases(within(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "it needs no session")

	want := []etcdlock.Leader{{}}
	one, two := c.candidate(), c.candidate()
	for i := range 20 { // swapping quickly, with a vacancy and without
		first := lead(t, one, "one "+strconv.Itoa(i))
		require.NoError(t, first.Proclaim(within(t), "one, again"))
		require.NoError(t, first.Proclaim(within(t), "one, again"), "which is no change")
		c.standOn(two, "two "+strconv.Itoa(i))
		resign(t, first)
		second := c.next("two " + strconv.Itoa(i))
		resign(t, second)
		want = append(want, leader(first, "one "+strconv.Itoa(i)), leader(first, "one, again"),
			leader(second, "two "+strconv.Itoa(i)), etcdlock.Leader{})
		// What is compacted before it has been told cannot be told.
		require.Eventually(t, func() bool { return seen.count.Load() == int64(len(want)) }, patience, waitABit)
		_, err := c.cluster.Compact(within(t))
		require.NoError(t, err)
	}
	want = append(want, leader(lead(t, one, "end"), "end"))
	require.Equal(t, want, await(t, "the observer", seen.all))
}

func TestObserveEndsWithItsContextAndWithAnInvalidName(t *testing.T) {
	_, client := newCluster(t)
	ctx, cancel := context.WithCancel(within(t))
	seen := observing(ctx, observer(client), "end")
	await(t, "the present state", seen.first)
	cancel()
	require.Len(t, await(t, "the end", seen.all), 1)
	require.Empty(t, await(t, "the end", observing(cancelled(), observer(client), "end").all))

	var told []error
	for _, err := range etcdlock.NewElection(session.Keep(client), "").Observe(within(t)) {
		told = append(told, err)
	}
	require.Len(t, told, 1, "once")
	require.ErrorIs(t, told[0], etcdlock.ErrInvalidName)
}

func TestObserveTellsThatEtcdRefusesAndGoesOn(t *testing.T) {
	c := newContest(t)
	refusal := c.cluster.Refuse("Watch", rpctypes.ErrPermissionDenied)
	seen := observing(within(t), observer(c.client), "me")
	require.True(t, await(t, "the present state", seen.first).Vacant())
	require.Eventually(t, func() bool { return seen.count.Load() > 1 }, patience, waitABit, "the refusal")
	refusal.Heal()
	lead(t, c.candidate(), "me")
	all := values(await(t, "the observer", seen.all))
	require.Contains(t, all[1], rpctypes.ErrPermissionDenied.Error())
	require.Equal(t, "me", all[len(all)-1])
}
