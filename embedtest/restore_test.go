package embedtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// header is that of a read of the member's own data.
func header(t *testing.T, client *clientv3.Client) *etcdserverpb.ResponseHeader {
	t.Helper()
	answer, err := client.Get(within(t, patience), "k")
	require.NoError(t, err)
	return answer.Header
}

func TestRestoreBringsOlderDataBackOnTheSameAddresses(t *testing.T) {
	for _, size := range []int{1, 3} {
		for name, options := range map[string][]embedtest.RestoreOption{
			"same ID": nil, "new ID": {embedtest.NewClusterID()},
		} {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) {
				c := embedtest.Start(t, embedtest.WithSize(size))
				client := c.Client(t)
				lease, err := client.Grant(within(t, patience), 3600)
				require.NoError(t, err)
				_, err = client.Put(within(t, patience), "k", "old", clientv3.WithLease(lease.ID))
				require.NoError(t, err)
				before := header(t, client)
				snapshot, err := c.Snapshot(within(t, patience))
				require.NoError(t, err)
				for range 10 {
					put(t, client, "k", "new")
				}
				put(t, client, "later", "v")
				endpoints := c.Endpoints()

				for range 2 {
					c.Members()[0].Kill() // a member that is down comes back too
					require.NoError(t, c.Restore(within(t, patience), snapshot, options...))
					require.Equal(t, endpoints, c.Endpoints())
					for _, one := range append([]*clientv3.Client{client}, clientsOf(t, c)...) {
						after := header(t, one)
						require.Equal(t, before.Revision, after.Revision)
						require.Equal(t, options == nil, before.ClusterId == after.ClusterId)
						require.Equal(t, "old", get(t, one, "k"))
						require.Empty(t, get(t, one, "later"))
					}
					left, err := client.TimeToLive(within(t, patience), lease.ID, clientv3.WithAttachedKeys())
					require.NoError(t, err)
					require.Len(t, left.Keys, 1)
					put(t, client, "later", "v")
					for _, m := range c.Members() {
						require.NoError(t, m.Restart())
						require.Equal(t, "v", get(t, m.Client(t), "later"))
					}
				}
			})
		}
	}
}

func clientsOf(t *testing.T, c *embedtest.Cluster) (clients []*clientv3.Client) {
	for _, m := range c.Members() {
		clients = append(clients, m.Client(t))
	}
	return clients
}

func TestWipedClusterBeginsAnew(t *testing.T) {
	for _, size := range []int{1, 3} {
		for name, options := range map[string][]embedtest.RestoreOption{
			"same ID": nil, "new ID": {embedtest.NewClusterID()},
		} {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) {
				c := embedtest.Start(t, embedtest.WithSize(size))
				client := c.Client(t)
				put(t, client, "k", "v")
				before := header(t, client)
				require.NoError(t, c.Wipe(within(t, patience), options...))
				after := header(t, client)
				require.EqualValues(t, 1, after.Revision)
				require.Equal(t, options == nil, before.ClusterId == after.ClusterId)
				require.Empty(t, get(t, client, "k"))
				index := c.AppliedIndex()
				put(t, client, "k", "w")
				require.Equal(t, index+1, c.AppliedIndex())
			})
		}
	}
}

func TestRestoreEndsIsolationAndNeedsNoQuorum(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	snapshot, err := c.Snapshot(within(t, patience))
	require.NoError(t, err)
	c.Members()[0].Isolate()
	c.Members()[1].Isolate()
	c.Members()[2].Kill()
	require.NoError(t, c.Restore(within(t, patience), snapshot, embedtest.NewClusterID()))
	for _, client := range clientsOf(t, c) {
		put(t, client, "k", "v")
	}
	lonely := c.Members()[1]
	lonely.Isolate() // by its new ID
	requireIsolated(t, lonely)
}

func TestAWatchOfWhatWasLostStaysSilentAfterARestore(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	snapshot, err := c.Snapshot(within(t, patience))
	require.NoError(t, err)
	for range 10 {
		put(t, client, "k", "v")
	}
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	<-watch
	require.NoError(t, c.Restore(within(t, patience), snapshot))
	comesTo(t, 1, func() int64 { return c.OpenStreams("Watch") })
	put(t, client, "k", "unseen")
	select {
	case answer := <-watch:
		require.Empty(t, answer.Events)
	case <-time.After(short):
	}
}

func TestUsersAreThereAfterARestoreAndAWipe(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithAuth("secret", embedtest.User{
		Name: "shop", Password: "word", Grants: []embedtest.Grant{embedtest.ReadWrite("k")},
	}))
	snapshot, err := c.Snapshot(within(t, patience))
	require.NoError(t, err)
	require.NoError(t, c.Restore(within(t, patience), snapshot))
	put(t, c.ClientAs(t, "shop"), "k", "v")
	require.NoError(t, c.Wipe(within(t, patience)))
	put(t, c.ClientAs(t, "shop"), "k", "v")
}

func TestASnapshotMayBeAnotherClustersAndOutliveIt(t *testing.T) {
	first := embedtest.Start(t)
	put(t, first.Client(t), "k", "v")
	snapshot, err := first.Snapshot(within(t, patience))
	require.NoError(t, err)
	closesSoon(t, first)
	_, err = first.Snapshot(within(t, patience))
	require.Error(t, err)
	require.Error(t, first.Restore(within(t, patience), snapshot))

	dir := t.TempDir()
	second := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithDir(dir))
	require.NoError(t, second.Restore(within(t, patience), snapshot))
	require.Equal(t, "v", get(t, second.Client(t), "k"))
	closesSoon(t, second)
	third := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithDir(dir))
	require.Equal(t, "v", get(t, third.Client(t), "k"))
}

func TestRestoreWorksInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := embedtest.Start(t, embedtest.WithVirtualTime())
		client := c.Client(t)
		put(t, client, "k", "old")
		snapshot, err := c.Snapshot(within(t, patience))
		require.NoError(t, err)
		put(t, client, "k", "new")
		require.NoError(t, c.Restore(within(t, patience), snapshot))
		require.Equal(t, "old", get(t, client, "k"))
	})
}
