package embedtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/etcdlock/locks/embedtest"
)

// expiryCheck is how often etcd looks for leases that are over.
const expiryCheck = 500 * time.Millisecond

// inVirtualTime runs test with a cluster for which hours pass in a moment.
func inVirtualTime(t *testing.T, test func(*testing.T, *embedtest.Cluster), opts ...embedtest.Option) {
	t.Helper()
	t.Parallel() // with tests outside of bubbles too
	synctest.Test(t, func(t *testing.T) {
		test(t, embedtest.Start(t, append(opts, embedtest.WithVirtualTime())...))
	})
}

func TestLeasesOfAnyLengthEndOnTimeInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		for _, ttl := range []time.Duration{2 * time.Second, time.Minute, 3 * time.Hour} {
			granted, err := client.Grant(t.Context(), int64(ttl/time.Second))
			require.NoError(t, err)
			began := time.Now()
			_, err = client.Put(t.Context(), "k", "v", clientv3.WithLease(granted.ID))
			require.NoError(t, err)
			require.Zero(t, time.Since(began), "requests take no time")

			event := <-client.Watch(t.Context(), "k")
			require.Equal(t, clientv3.EventTypeDelete, event.Events[0].Type)
			require.GreaterOrEqual(t, time.Since(began), ttl)
			require.LessOrEqual(t, time.Since(began), ttl+expiryCheck)
		}
	})
}

func TestWhoIsSilencedWaitsExactlyAsLongAsItWantsTo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		lost := c.LoseReply("Put", embedtest.Once())
		began := time.Now()
		_, err := client.Put(within(t, time.Hour), "k", "lost")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(began))
		require.Equal(t, 1, lost.Bites())
		require.Equal(t, "lost", get(t, client, "k"))

		c.Delay("Put", 10*time.Minute, embedtest.Once())
		began = time.Now()
		_, err = client.Put(within(t, time.Hour), "k", "late")
		require.NoError(t, err)
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.EqualValues(t, 2, c.Calls("Put"))
	})
}

func TestLinksWorkInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client, link := c.Link(t)
		put(t, client, "k", "v")

		link.Delay(time.Second)
		began := time.Now()
		require.Equal(t, "v", get(t, client, "k"))
		require.Equal(t, 2*time.Second, time.Since(began), "there and back")

		link.Blackhole()
		began = time.Now()
		_, err := client.Get(within(t, time.Hour), "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(began))
		require.Equal(t, "v", get(t, c.Client(t), "k"), "others are not concerned")

		link.Cut()
		_, err = client.Get(within(t, time.Hour), "k")
		require.Error(t, err)
		link.Heal()
		require.Equal(t, "v", get(t, client, "k"))
	})
}

func TestAMemberEndsAndComesBackInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client, m := c.Client(t), c.Members()[0]
		watch := client.Watch(t.Context(), "k")
		for i, end := range []func(){m.Stop, m.Kill, m.Stop} {
			value := fmt.Sprint(i)
			put(t, client, "k", value)
			require.Equal(t, value, string((<-watch).Events[0].Kv.Value))
			end()
			_, err := client.Get(within(t, time.Hour), "k")
			require.Error(t, err)
			require.NoError(t, m.Restart())
			require.Equal(t, value, get(t, client, "k"))
		}
		put(t, m.Client(t), "k", "last")
		require.Equal(t, "last", string((<-watch).Events[0].Kv.Value), "the watch goes on")
		require.NoError(t, c.Close())
	})
}

func TestCertificatesAndUsersWorkInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.ClientAs(t, "alice")
		put(t, client, "alice/k", "v")
		time.Sleep(time.Hour) // the token expires
		require.Equal(t, "v", get(t, client, "alice/k"))
		event := <-client.Watch(t.Context(), "bob/k")
		require.ErrorContains(t, event.Err(), "permission denied")
	}, embedtest.WithMutualTLS(), embedtest.WithAuth("secret", alice))
}

// The watches are this package's own; the rest of etcd's client and server has to go with it.
func TestEtcdsOwnLocksWorkInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		var sessions []*concurrency.Session
		for range 2 {
			s, err := concurrency.NewSession(c.Client(t), concurrency.WithTTL(60))
			require.NoError(t, err)
			sessions = append(sessions, s)
		}
		holder, waiter := concurrency.NewMutex(sessions[0], "lock"), concurrency.NewMutex(sessions[1], "lock")
		require.NoError(t, holder.Lock(t.Context()))
		began := time.Now()
		time.AfterFunc(time.Hour, func() { _ = holder.Unlock(context.Background()) })
		require.NoError(t, waiter.Lock(t.Context()))
		require.WithinDuration(t, began.Add(time.Hour), time.Now(), time.Second)
		for _, s := range sessions {
			require.NoError(t, s.Close())
		}
	})
}

func TestTheServersOwnLockServiceWorksInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		locks := v3lockpb.NewLockClient(client.ActiveConnection())
		lock := func(ttl int64) {
			granted, err := client.Grant(t.Context(), ttl)
			require.NoError(t, err)
			_, err = locks.Lock(t.Context(), &v3lockpb.LockRequest{Name: []byte("lock"), Lease: int64(granted.ID)})
			require.NoError(t, err)
		}
		began := time.Now()
		lock(3600)
		lock(7200)
		require.WithinDuration(t, began.Add(time.Hour), time.Now(), time.Second)
	})
}

func TestVirtualTimeThatCannotBeIsRefused(t *testing.T) {
	_, err := embedtest.Open(embedtest.WithVirtualTime())
	require.ErrorContains(t, err, "synctest.Test")
	synctest.Test(t, func(t *testing.T) {
		_, err := embedtest.Open(embedtest.WithVirtualTime(), embedtest.WithSize(3))
		require.ErrorContains(t, err, "one member")
	})
}

func TestWatchesInVirtualTimeCannotBeAskedForProgress(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		require.ErrorContains(t, client.RequestProgress(t.Context()), "virtual time")
		watch := client.Watch(t.Context(), "k", clientv3.WithProgressNotify())
		began := time.Now()
		response := <-watch
		require.True(t, response.IsProgressNotify())
		require.Less(t, time.Since(began), time.Hour)
		put(t, client, "k", "v")
		_, err := c.Compact(t.Context())
		require.NoError(t, err)
		response = <-client.Watch(t.Context(), "k", clientv3.WithRev(1))
		require.ErrorIs(t, response.Err(), rpctypes.ErrCompacted)
	})
}
