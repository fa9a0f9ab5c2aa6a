package session_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// awaitRenewals waits until the cluster has been asked for n more.
func awaitRenewals(t *testing.T, c *embedtest.Cluster, n int64) {
	t.Helper()
	before := c.Calls("LeaseKeepAlive")
	require.Eventually(t, func() bool { return c.Calls("LeaseKeepAlive") >= before+n }, time.Minute, 5*time.Millisecond)
}

func raftIndex(c *embedtest.Cluster) uint64 { return c.Members()[0].Server().AppliedIndex() }

func TestAnIdleSessionWithAPasswordMakesNoRaftEntry(t *testing.T) {
	c := startEtcd(t, embedtest.WithAuth("secret"))
	client := c.Client(t)
	s := create(t, client, session.WithTTL(time.Second))
	for before := uint64(0); before != raftIndex(c); { // the stream authenticates when it is opened
		before = raftIndex(c)
		awaitRenewals(t, c, 3)
	}
	authenticated, index := c.Calls("Authenticate"), raftIndex(c)
	awaitRenewals(t, c, 5)
	require.Equal(t, authenticated, c.Calls("Authenticate"))
	require.Equal(t, index, raftIndex(c))
	require.NoError(t, s.Err())
}

func signedTokens(t *testing.T, ttl time.Duration) embedtest.Option {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(rand.Text()), 0o600))
	return embedtest.WithConfig(func(cfg *embed.Config) {
		cfg.AuthToken = "jwt,sign-method=HS256,priv-key=" + key + ",ttl=" + ttl.String()
	})
}

func TestATokenThatExpiresWhileTheSessionIsIdleDoesNotCostIt(t *testing.T) {
	for name, tokens := range map[string]embedtest.Option{
		"simple": embedtest.WithTokenTTL(2 * time.Second),
		"JWT":    signedTokens(t, 2*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			c := startEtcd(t, embedtest.WithAuth("secret"), tokens)
			client := c.Client(t)
			s := create(t, client, session.WithTTL(9*time.Second)) // renewed every 3 s: the token is older
			before := c.Calls("Authenticate")
			awaitRenewals(t, c, 2)
			require.Greater(t, c.Calls("Authenticate"), before, "the token has expired")
			require.NoError(t, s.Renew(t.Context()))
			_, err := client.Put(t.Context(), "k", "v", clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
			require.NoError(t, s.Err())
			w, err := s.Link().Watch(t.Context(), time.Minute, "", "k")
			require.NoError(t, err)
			w.Stop()
		})
	}
}
