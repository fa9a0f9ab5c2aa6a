package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

func leases(t *testing.T, c *clientv3.Client) []clientv3.LeaseStatus {
	t.Helper()
	answer, err := c.Leases(t.Context())
	require.NoError(t, err)
	return answer.Leases
}

func leaseExists(t *testing.T, c *clientv3.Client, lease clientv3.LeaseID) bool {
	t.Helper()
	answer, err := c.TimeToLive(t.Context(), lease)
	require.NoError(t, err)
	return answer.TTL >= 0
}

func withAndWithoutPassword(t *testing.T, test func(t *testing.T, options ...embedtest.Option)) {
	t.Helper()
	t.Run("without a password", func(t *testing.T) { test(t) })
	t.Run("with a password", func(t *testing.T) { test(t, embedtest.WithAuth("secret")) })
}

// Whichever of three is silent; the balancer goes round, so of three requests one meets it.
func TestRenewFindsAnotherEndpoint(t *testing.T) {
	withAndWithoutPassword(t, func(t *testing.T, options ...embedtest.Option) {
		cluster := startEtcd(t, append(options, embedtest.WithSize(3))...)
		renewed := make(chan error)
		for _, member := range cluster.Members() {
			client, link := cluster.Link(t)
			s := create(t, client, session.WithTTL(time.Minute))
			link.Blackhole(member)
			t.Cleanup(func() { link.Heal(member) })
			for range 3 {
				go func() { renewed <- s.Renew(t.Context()) }()
			}
		}
		for range 9 {
			require.NoError(t, <-renewed)
		}
	})
}

// Etcd's own method asks again without a pause then.
func TestAMemberThatIsNotAvailableIsNotAskedInATightLoop(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		refusal := c.Refuse("LeaseKeepAlive", status.Error(codes.Unavailable, "not now"))
		s := create(t, c.Client(t), session.WithTTL(2*time.Second))
		<-s.Done()
		require.Positive(t, refusal.Bites())
		require.Less(t, refusal.Bites(), 60)
	})
}

// While no member is up, a renewal is not refused, so that it leaves as soon as there is a connection and
// not after a pause that has become long.
func TestARenewalWaitsForAConnection(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		s := create(t, c.Client(t), session.WithTTL(time.Minute))
		c.Members()[0].Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := s.Renew(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "last answer", "there was none")
		require.NoError(t, c.Members()[0].Restart())
		require.NoError(t, s.Renew(t.Context()))
		require.True(t, leaseExists(t, c.Client(t), s.Lease()))
	})
}

// All members are restarted one by one, and the leader moves.
func TestSessionSurvivesARollingRestart(t *testing.T) {
	cluster := startEtcd(t, embedtest.WithSize(3))
	client := cluster.Client(t)
	s := create(t, client, session.WithTTL(time.Minute))
	for _, member := range cluster.Members() {
		member.Stop()
		require.NoError(t, s.Renew(t.Context()))
		require.NoError(t, member.Restart())
		_, err := cluster.WaitLeader(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Renew(t.Context()))
	}
	for _, member := range cluster.Members() {
		require.NoError(t, cluster.MoveLeader(t.Context(), member))
		require.NoError(t, s.Renew(t.Context()))
	}
	require.NoError(t, s.Err())
	require.True(t, leaseExists(t, client, s.Lease()))
}

// The answer to the first grant is lost. That lease cannot be found again, as
// the server chose its number; nothing is bound to it, and it runs out.
func TestLostGrantCostsNoMoreThanAnEmptyLease(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		other := c.Client(t)
		fault := c.LoseReply("LeaseGrant", embedtest.Once())
		s := create(t, c.Client(t), session.WithTTL(10*time.Second))
		require.Equal(t, 1, fault.Bites())
		require.NoError(t, s.Close(t.Context()))
		left := leases(t, other)
		require.Len(t, left, 1)
		require.NotEqual(t, s.Lease(), left[0].ID)
		until(t, func() bool { return len(leases(t, other)) == 0 })
	})
}

func TestCloseConfirmsARevocationThatItDidNotHearOf(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		s := create(t, client)
		fault := c.LoseReply("LeaseRevoke", embedtest.Once())
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, 1, fault.Bites())
		require.Empty(t, leases(t, client))
	})
}

func TestSessionWorksInANamespace(t *testing.T) {
	cluster := startEtcd(t)
	plain := cluster.Client(t)
	client := cluster.Client(t)
	client.KV = namespace.NewKV(client.KV, "tenant/")
	client.Lease = namespace.NewLease(client.Lease, "tenant/")
	client.Watcher = namespace.NewWatcher(client.Watcher, "tenant/")

	s := create(t, client)
	require.NoError(t, s.Renew(t.Context()))
	revision := put(t, client, "key", s.Lease())
	put(t, client, "late", s.Lease())
	put(t, plain, "key", 0)
	put(t, plain, "late", 0)
	gone := make(chan struct{})
	s.Link().Epoch("!/epoch").Doubt("late", func() {})
	s.Link().Discard("key", revision, func() { close(gone) })
	<-gone
	until(t, func() bool {
		answer, err := plain.Get(t.Context(), "tenant/", clientv3.WithPrefix())
		require.NoError(t, err)
		return len(answer.Kvs) == 1 && string(answer.Kvs[0].Key) == "tenant/!/epoch"
	})
	answer, err := plain.Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 3, "the same names outside are somebody else's")
}
