package etcdlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

const sharedPrefix = "shared/election"

func awaitShared(t *testing.T, c *clientv3.Client, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := c.Get(within(t), sharedPrefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && answer.Count == n
	}, patience, 5*time.Millisecond)
}

func TestCandidatesOfBothKindsLeadInOrderAndReadEachOther(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := etcdlock.NewElection(newSession(t, cluster.Client(t)), sharedPrefix, etcdlock.AtPrefix())
	s, err := concurrency.NewSession(client)
	require.NoError(t, err)
	theirs := concurrency.NewElection(s, sharedPrefix)
	ctx := within(t)
	told := theirs.Observe(ctx)
	seen := observing(ctx, e, "ours 2")
	await(t, "the present state", seen.first)

	term := lead(t, e, "ours 1")
	answer, err := theirs.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "ours 1", string(answer.Kvs[0].Value))
	require.Equal(t, term.Key(), string(answer.Kvs[0].Key))
	require.Equal(t, "ours 1", string(await(t, "their observer", told).Kvs[0].Value))

	led := make(chan error, 1)
	go func() { led <- theirs.Campaign(ctx, "theirs") }()
	awaitShared(t, client, 2)
	next := campaigning(ctx, e, "ours 2")
	awaitShared(t, client, 3)
	resign(t, term)
	require.NoError(t, await(t, "theirs", led))
	stillWaiting(t, next)
	leader, err := e.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, etcdlock.Leader{Value: "theirs", Key: theirs.Key(), Token: etcdlock.Token(theirs.Rev())}, leader)

	_, err = client.Revoke(ctx, s.Lease()) // theirs crashes
	require.NoError(t, err)
	term = awaitTerm(t, "ours", next)
	require.Equal(t, []string{"", "ours 1", "theirs", "ours 2"}, values(await(t, "our observer", seen.all)))
	require.NoError(t, term.Err())
}

func TestACrashOfOursLetsTheirsLead(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	ours := newSession(t, cluster.Client(t))
	lead(t, etcdlock.NewElection(ours, sharedPrefix, etcdlock.AtPrefix()), "ours")
	s, err := concurrency.NewSession(client)
	require.NoError(t, err)
	ctx := within(t)
	theirs := concurrency.NewElection(s, sharedPrefix)
	led := make(chan error, 1)
	go func() { led <- theirs.Campaign(ctx, "theirs") }()
	awaitShared(t, client, 2)
	require.Empty(t, led)
	revoke(t, client, ours)
	require.NoError(t, await(t, "theirs", led))
	require.NoError(t, s.Close())
}
