package embedtest_test

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// ownClient is a client that this package has not set up.
func ownClient(t *testing.T, c *embedtest.Cluster, cfg *tls.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: cfg})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestEveryClientOfAClusterWithTLSIsServed(t *testing.T) {
	for name, opt := range map[string]embedtest.Option{
		"one side": embedtest.WithTLS(), "both sides": embedtest.WithMutualTLS(),
	} {
		t.Run(name, func(t *testing.T) {
			c := embedtest.Start(t, opt, embedtest.WithSize(3))
			put(t, c.Client(t), "k", "v")
			linked, link := c.Link(t)
			require.Equal(t, "v", get(t, linked, "k"))
			for _, m := range c.Members() {
				require.Equal(t, "v", get(t, m.Client(t), "k"))
			}
			require.Equal(t, "v", get(t, ownClient(t, c, c.TLSConfig()), "k"))

			link.Blackhole()
			requireSilence(t, linked)
			link.Heal()
			require.Equal(t, "v", get(t, linked, "k"))
			for _, m := range c.Members() {
				require.NoError(t, m.Restart())
			}
			require.Equal(t, "v", get(t, linked, "k"), "the certificates outlast the members")
		})
	}
}

func TestClientsThatDoNotFitTheTLSAreNotServed(t *testing.T) {
	oneSide := embedtest.Start(t, embedtest.WithTLS())
	bothSides := embedtest.Start(t, embedtest.WithMutualTLS())
	withoutCertificate := bothSides.TLSConfig()
	withoutCertificate.Certificates = nil
	foreignCertificate := bothSides.TLSConfig()
	foreignCertificate.Certificates = embedtest.Start(t, embedtest.WithMutualTLS()).TLSConfig().Certificates
	for name, client := range map[string]*clientv3.Client{
		"plain":                  ownClient(t, oneSide, nil),
		"of another authority":   ownClient(t, oneSide, bothSides.TLSConfig()),
		"without a certificate":  ownClient(t, bothSides, withoutCertificate),
		"of another certificate": ownClient(t, bothSides, foreignCertificate),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Get(within(t, short), "k")
			require.Error(t, err)
		})
	}
	require.Zero(t, oneSide.Calls("Range")+bothSides.Calls("Range"))
}

func TestTheTLSConfigIsTheCallersOwn(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithMutualTLS())
	cfg := c.TLSConfig()
	cfg.RootCAs, cfg.Certificates = nil, nil
	put(t, c.Client(t), "k", "v")
	require.Nil(t, embedtest.Start(t).TLSConfig())
}
