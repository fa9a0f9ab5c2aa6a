package embedtest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

func names(c *embedtest.Cluster) (names []string) {
	for _, m := range c.Members() {
		names = append(names, m.Name())
	}
	return names
}

// requireMembers asks etcd itself which members the cluster has.
func requireMembers(t *testing.T, client *clientv3.Client, want []string) {
	t.Helper()
	answer, err := client.MemberList(within(t, patience))
	require.NoError(t, err)
	var names []string
	for _, m := range answer.Members {
		names = append(names, m.Name)
	}
	require.ElementsMatch(t, want, names)
}

func TestAClusterIsExchangedMemberByMember(t *testing.T) {
	for name, options := range map[string][]embedtest.Option{
		"plain": nil,
		"TLS":   {embedtest.WithMutualTLS()},
		"users": {embedtest.WithAuth("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, append(options, embedtest.WithSize(3))...)
			client := c.Client(t)
			put(t, client, "k", "v")
			for _, old := range c.Members() {
				added, err := c.AddMember(within(t, patience))
				require.NoError(t, err)
				require.Equal(t, "v", get(t, added.Client(t), "k"))
				require.NoError(t, client.Sync(within(t, patience)))
				require.NoError(t, old.Remove(within(t, patience)))
				requireMembers(t, added.Client(t), names(c))
				require.NotNil(t, c.Leader())
			}
			require.Equal(t, []string{"m3", "m4", "m5"}, names(c))
			require.Equal(t, "v", get(t, client, "k"))
			for _, m := range c.Members() {
				require.NoError(t, m.Restart())
				require.Equal(t, "v", get(t, m.Client(t), "k"))
			}
		})
	}
}

func TestARemovedMemberIsGoneForGood(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	removed := c.Leader()
	client, link := c.Link(t)
	put(t, client, "k", "v")
	require.NoError(t, removed.Remove(within(t, patience)))
	require.NotContains(t, c.Endpoints(), removed.Endpoint())
	require.Nil(t, removed.Server())
	require.ErrorContains(t, removed.Restart(), "removed")
	require.ErrorContains(t, removed.Remove(within(t, patience)), "removed")
	removed.Isolate()
	removed.Heal()
	link.Blackhole(removed)
	_, err := removed.Client(t).Get(within(t, short), "k")
	require.Error(t, err)
	link.Heal() // the client has the address still
	require.Equal(t, "v", get(t, client, "k"))

	down := c.Members()[0]
	down.Kill()
	require.Error(t, down.Remove(within(t, short))) // without a quorum
	require.NoError(t, down.Restart())
	require.NoError(t, down.Remove(within(t, patience)))
	require.Equal(t, "v", get(t, client, "k"))
	require.ErrorContains(t, c.Members()[0].Remove(within(t, patience)), "last")
	require.Equal(t, "v", get(t, client, "k"))
}

func TestHealingALinkReachesARemovedMember(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	removed := c.Leader()
	client, link := c.Link(t)
	client.SetEndpoints(removed.Endpoint())
	put(t, client, "k", "v") // on a connection to the member
	link.Blackhole(removed)
	require.NoError(t, removed.Remove(within(t, patience)))
	client.SetEndpoints(append(c.Endpoints(), removed.Endpoint())...)
	link.Heal()
	for range 3 { // on each connection
		require.Equal(t, "v", get(t, client, "k"))
	}
}

func TestLinksAndIsolationReachMembersThatCame(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(2))
	added, err := c.AddMember(within(t, patience))
	require.NoError(t, err)
	put(t, added.Client(t), "k", "v")

	client, link := c.Link(t)
	link.Cut()
	another, err := c.AddMember(within(t, patience))
	require.NoError(t, err)
	client.SetEndpoints(another.Endpoint())
	require.Equal(t, "v", get(t, client, "k"))
	link.Cut()
	_, err = client.Get(within(t, short), "k")
	require.Error(t, err)

	another.Isolate()
	requireIsolated(t, another)
	another.Heal()
	put(t, another.Client(t), "k", "w")
}

func TestNoChangeOfTheMembersCostsTheQuorum(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	down, isolated := c.Members()[0], c.Members()[1]
	down.Kill()
	_, err := c.AddMember(within(t, patience)) // two of four
	require.ErrorContains(t, err, "quorum")
	require.ErrorContains(t, isolated.Remove(within(t, patience)), "quorum") // one of two
	require.NoError(t, down.Restart())
	isolated.Isolate()
	_, err = c.AddMember(within(t, patience))
	require.ErrorContains(t, err, "quorum")
	require.NoError(t, isolated.Remove(within(t, patience)))
	put(t, down.Client(t), "k", "v")
}

func TestAMemberThatCannotBeAddedLeavesTheClusterAsItWas(t *testing.T) {
	alone := embedtest.Start(t)
	_, err := alone.AddMember(within(t, patience))
	require.ErrorContains(t, err, "one member")

	c := embedtest.Start(t, embedtest.WithSize(3))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.AddMember(ended)
	require.ErrorIs(t, err, context.Canceled)
	requireMembers(t, c.Client(t), []string{"m0", "m1", "m2"})
	require.Equal(t, []string{"m0", "m1", "m2"}, names(c))
	closesSoon(t, c)
	_, err = c.AddMember(within(t, patience))
	require.Error(t, err)
	require.Error(t, c.Members()[0].Remove(within(t, patience)))
}

func TestMembersThatCameSurviveInADirectory(t *testing.T) {
	options := []embedtest.Option{embedtest.WithDir(t.TempDir()), embedtest.WithSize(3)}
	first := embedtest.Start(t, options...)
	put(t, first.Client(t), "k", "v")
	require.NoError(t, first.Members()[1].Remove(within(t, patience)))
	_, err := first.AddMember(within(t, patience))
	require.NoError(t, err)
	closesSoon(t, first)

	second := embedtest.Start(t, options...)
	require.Equal(t, []string{"m0", "m2", "m3"}, names(second))
	require.Equal(t, "v", get(t, second.Client(t), "k"))
	added, err := second.AddMember(within(t, patience))
	require.NoError(t, err)
	require.Equal(t, "m4", added.Name())
}

func TestRestoreKeepsMembersThatCame(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(2))
	put(t, c.Client(t), "k", "v")
	snapshot, err := c.Snapshot(within(t, patience))
	require.NoError(t, err)
	_, err = c.AddMember(within(t, patience))
	require.NoError(t, err)
	require.NoError(t, c.Restore(within(t, patience), snapshot))
	for _, client := range clientsOf(t, c) {
		require.Equal(t, "v", get(t, client, "k"))
		requireMembers(t, client, []string{"m0", "m1", "m2"})
	}
}

func TestMembersComeAndGoConcurrentlyWithOtherOrders(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	var orders sync.WaitGroup
	orders.Go(func() {
		_, err := c.AddMember(within(t, patience))
		require.NoError(t, err)
	})
	orders.Go(func() {
		_, err := c.AddMember(within(t, patience))
		require.NoError(t, err)
	})
	orders.Go(func() { require.NoError(t, c.Members()[0].Remove(within(t, patience))) })
	orders.Go(func() { c.Leader(); c.Endpoints(); c.AppliedIndex() })
	orders.Wait()
	require.Len(t, c.Members(), 4)
	put(t, c.Client(t), "k", "v")
}

func TestAlarmsHoldAtEveryMemberUntilDisarmed(t *testing.T) {
	for alarm, want := range map[etcdserverpb.AlarmType]error{
		etcdserverpb.AlarmType_NOSPACE: rpctypes.ErrNoSpace,
		etcdserverpb.AlarmType_CORRUPT: rpctypes.ErrCorrupt,
	} {
		t.Run(alarm.String(), func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithAuth("secret"))
			put(t, c.Client(t), "k", "v")
			require.NoError(t, c.RaiseAlarm(within(t, patience), alarm))
			refuse := func() {
				for _, client := range clientsOf(t, c) {
					_, err := client.Put(within(t, patience), "k", "w")
					require.ErrorIs(t, err, want)
					_, err = client.Grant(within(t, patience), 60)
					require.ErrorIs(t, err, want)
					_, err = client.Delete(within(t, patience), "other")
					require.Equal(t, alarm == etcdserverpb.AlarmType_NOSPACE, err == nil)
					require.Equal(t, "v", get(t, client, "k"))
				}
			}
			refuse()
			for _, m := range c.Members() {
				require.NoError(t, m.Restart())
			}
			refuse()
			require.NoError(t, c.DisarmAlarms(within(t, patience)))
			require.NoError(t, c.DisarmAlarms(within(t, patience)))
			for _, client := range clientsOf(t, c) {
				put(t, client, "k", "w")
			}
		})
	}
}

func TestAlarmsNeedAQuorum(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	for _, m := range c.Members()[1:] {
		m.Kill()
	}
	require.Error(t, c.RaiseAlarm(within(t, short), etcdserverpb.AlarmType_NOSPACE))
	require.Error(t, c.DisarmAlarms(within(t, short)))
}
