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
)

func TestAnIdleSessionWithAPasswordMakesNoRaftEntry(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		s := create(t, c.Client(t))
		time.Sleep(s.TTL()) // the stream authenticates when it is opened
		authenticated, index, renewals := c.Calls("Authenticate"), c.AppliedIndex(), c.Calls("LeaseKeepAlive")
		time.Sleep(2 * s.TTL())
		require.Equal(t, renewals+6, c.Calls("LeaseKeepAlive"))
		require.Equal(t, authenticated, c.Calls("Authenticate"))
		require.Equal(t, index, c.AppliedIndex())
		require.NoError(t, s.Err())
	}, embedtest.WithAuth("secret"))
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
			withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
				client := c.Client(t)
				s := create(t, client) // renewed every 5 s: the token is older
				before := c.Calls("Authenticate")
				time.Sleep(s.TTL())
				require.Greater(t, c.Calls("Authenticate"), before, "the token has expired")
				require.NoError(t, s.Renew(t.Context()))
				_, err := client.Put(t.Context(), "k", "v", clientv3.WithLease(s.Lease()))
				require.NoError(t, err)
				require.NoError(t, s.Err())
				w, err := s.Link().Watch(t.Context(), time.Minute, "", "k")
				require.NoError(t, err)
				w.Stop()
			}, embedtest.WithAuth("secret"), tokens)
		})
	}
}
