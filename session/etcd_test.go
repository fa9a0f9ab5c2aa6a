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
	"github.com/etcdlock/locks/internal/request"
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

// Each of three endpoints in turn; the balancer goes round, so of three
// requests one meets the silent one.
func TestRenewFindsAnotherEndpoint(t *testing.T) {
	withAndWithoutPassword(t, func(t *testing.T, options ...embedtest.Option) {
		cluster := startEtcd(t, append(options, embedtest.WithSize(3))...)
		client, link := cluster.Link(t)
		s := create(t, client, session.WithTTL(time.Minute))
		for _, member := range cluster.Members() {
			link.Blackhole(member)
			for range 3 {
				require.NoError(t, s.Renew(t.Context()))
			}
			link.Heal(member)
		}
	})
}

// Etcd's own method asks again without a pause then.
func TestAMemberThatIsNotAvailableIsNotAskedInATightLoop(t *testing.T) {
	cluster := startEtcd(t)
	refusal := cluster.Refuse("LeaseKeepAlive", status.Error(codes.Unavailable, "not now"))
	s := create(t, cluster.Client(t), session.WithTTL(2*time.Second))
	<-s.Done()
	require.Positive(t, refusal.Bites())
	require.Less(t, refusal.Bites(), 60)
}

// While no member is up, a renewal is not refused, so that it leaves as soon as there is a connection and
// not after a pause that has become long.
func TestARenewalWaitsForAConnection(t *testing.T) {
	cluster := startEtcd(t)
	s := create(t, cluster.Client(t), session.WithTTL(time.Minute))
	cluster.Members()[0].Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
	defer cancel()
	err := s.Renew(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "last answer", "there was none")
	require.NoError(t, cluster.Members()[0].Restart())
	require.NoError(t, s.Renew(t.Context()))
	require.True(t, leaseExists(t, cluster.Client(t), s.Lease()))
}

// A write with that lease is the first to notice.
func TestRevokedLeaseIsNoticedByAWrite(t *testing.T) {
	cluster := startEtcd(t)
	client := cluster.Client(t)
	s := create(t, client, session.WithTTL(time.Minute))
	_, err := client.Revoke(t.Context(), s.Lease())
	require.NoError(t, err)
	err = s.Link().Call(t.Context(), func(ctx context.Context) error {
		_, err := client.Put(ctx, "key", "", clientv3.WithLease(s.Lease()))
		return err
	})
	require.ErrorIs(t, err, session.ErrLost)
	require.False(t, request.Doubtful(err), "nothing was written and nothing will be")
	<-s.Done()
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
	cluster := startEtcd(t)
	other := cluster.Client(t)
	fault := cluster.LoseReply("LeaseGrant", embedtest.Once())
	s := create(t, cluster.Client(t), session.WithTTL(2*time.Second))
	require.Equal(t, 1, fault.Bites())
	require.NoError(t, s.Renew(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	for _, lease := range leases(t, other) {
		require.NotEqual(t, s.Lease(), lease.ID)
		answer, err := other.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.Empty(t, answer.Keys)
	}
	until(t, func() bool { return len(leases(t, other)) == 0 })
}

// The answer to the revocation is lost.
func TestCloseConfirmsARevocationThatItDidNotHearOf(t *testing.T) {
	cluster := startEtcd(t)
	client := cluster.Client(t)
	s := create(t, client)
	fault := cluster.LoseReply("LeaseRevoke", embedtest.Once())
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, 1, fault.Bites())
	require.Empty(t, leases(t, client))
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
