package caddylock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	caddylock "github.com/etcdlock/locks/adapters/certmagic/caddy"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// load makes Caddy run a configuration, and stop at the end of the test. There is one Caddy in a process.
func load(t *testing.T, config string) {
	t.Helper()
	require.NoError(t, caddy.Load([]byte(config), true))
	t.Cleanup(func() { _ = caddy.Stop() })
}

func onlyStorage(t *testing.T, cluster *embedtest.Cluster, prefix string) string {
	text, err := json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true},
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"writer": map[string]any{"output": "discard"}}}},
		"storage": map[string]any{"module": "etcdlock", "endpoints": cluster.Endpoints(), "prefix": prefix, "ttl": "5s"},
	})
	require.NoError(t, err)
	return string(text)
}

func requireTaken(t *testing.T, client *clientv3.Client, name string, taken bool) {
	t.Helper()
	queue, err := etcdlock.Inspect(t.Context(), client, name)
	require.NoError(t, err)
	require.Equal(t, taken, len(queue.Places) > 0)
}

func TestCaddyStoresWhereItIsConfiguredTo(t *testing.T) {
	cluster := embedtest.Start(t)
	load(t, onlyStorage(t, cluster, "fleet"))
	require.NoError(t, certmagic.Default.Storage.Store(t.Context(), "some/key", []byte("value")))
	answer, err := cluster.Client(t).Get(t.Context(), "fleet/some/key")
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
}

func TestAReloadKeepsLocksAndAStopFreesThem(t *testing.T) {
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	load(t, onlyStorage(t, cluster, "fleet"))
	storage := certmagic.Default.Storage
	require.NoError(t, storage.Lock(t.Context(), "name"))
	load(t, onlyStorage(t, cluster, "fleet"))
	requireTaken(t, client, "fleet/name", true)
	require.NoError(t, storage.Store(t.Context(), "key", nil), "what has begun before can be finished")
	load(t, onlyStorage(t, cluster, "another"))
	requireTaken(t, client, "fleet/name", false)
	require.NoError(t, storage.Unlock(t.Context(), "name"))

	require.NoError(t, certmagic.Default.Storage.Lock(t.Context(), "name"))
	requireTaken(t, client, "another/name", true)
	require.NoError(t, caddy.Stop())
	requireTaken(t, client, "another/name", false)
}

// Caddy makes an authority and a certificate, and serves them.
func TestCaddyServesACertificateFromEtcd(t *testing.T) {
	cluster := embedtest.Start(t)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(fmt.Sprintf(`{
	admin off
	skip_install_trust
	auto_https disable_redirects
	log {
		output discard
	}
	storage etcdlock %s {
		ttl 5s
	}
}
https://localhost:%s {
	tls internal
	respond "hello"
}
`, strings.Join(cluster.Endpoints(), " "), port)), nil)
	require.NoError(t, err)
	require.Empty(t, warnings)
	load(t, string(config))
	var root []byte
	require.Eventually(t, func() bool {
		root, err = certmagic.Default.Storage.Load(t.Context(), "pki/authorities/local/root.crt")
		return err == nil && certmagic.Default.Storage.Exists(t.Context(), "certificates/local/localhost/localhost.crt")
	}, time.Minute, 10*time.Millisecond)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(root))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Transport: transport}
	require.Eventually(t, func() bool {
		answer, err := browser.Get("https://localhost:" + port)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text) == "hello"
	}, time.Minute, 10*time.Millisecond)
}

func TestTheCaddyfileHasAllSettings(t *testing.T) {
	parse := func(text string) (*caddylock.Storage, error) {
		s := new(caddylock.Storage)
		return s, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
	}
	s, err := parse(`etcdlock a:1 {
		endpoints b:2 c:3
		prefix certs
		username caddy
		password {env.ETCD_PASSWORD}
		ca_cert ca.pem
		cert cert.pem
		key key.pem
		ttl 20s
	}`)
	require.NoError(t, err)
	require.Equal(t, &caddylock.Storage{
		Endpoints: []string{"a:1", "b:2", "c:3"}, Prefix: "certs", Username: "caddy", Password: "{env.ETCD_PASSWORD}",
		CACert: "ca.pem", Cert: "cert.pem", Key: "key.pem", TTL: caddy.Duration(20 * time.Second),
	}, s)
	for text, message := range map[string]string{
		"etcdlock {\n unknown x\n}":   `unrecognized option "unknown"`,
		"etcdlock {\n prefix\n}":      "wrong argument count",
		"etcdlock {\n endpoints\n}":   "wrong argument count",
		"etcdlock {\n prefix a b\n}":  "wrong argument count",
		"etcdlock {\n ttl forever\n}": "invalid duration",
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, message, text)
	}
}

func TestProvisionRefusesWhatCannotWork(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	for message, s := range map[string]*caddylock.Storage{
		"ttl must be positive":        {TTL: -1},
		"a password needs a username": {Password: "secret"},
		"cert and key go together":    {Cert: "cert.pem"},
		"prefix etcdlock":             {Prefix: "etcdlock/caddy"},
		"connecting to etcd":          {CACert: "/does/not/exist"},
	} {
		require.ErrorContains(t, s.Provision(ctx), message)
		require.NoError(t, s.Cleanup())
		_, err := s.CertMagicStorage()
		require.Error(t, err)
	}
}

func TestPlaceholdersAreReplaced(t *testing.T) {
	cluster := embedtest.Start(t, embedtest.WithAuth("secret"))
	t.Setenv("ETCD_PASSWORD", "secret")
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	s := &caddylock.Storage{Endpoints: cluster.Endpoints(), Username: "root", Password: "{env.ETCD_PASSWORD}"}
	require.NoError(t, s.Provision(ctx))
	storage, err := s.CertMagicStorage()
	require.NoError(t, err)
	require.NoError(t, storage.Store(t.Context(), "key", nil))
	require.NoError(t, s.Cleanup())
}
