package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
)

func TestCertificatesAreReadFromFiles(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithMutualTLS())
	own := cluster.TLSConfig().Certificates[0]
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	cert, secret := file("cert.pem", "CERTIFICATE", own.Certificate[0]), file("key.pem", "PRIVATE KEY", key)

	with := prepare(t, cluster.Endpoints(), "--insecure-skip-tls-verify", "--cert", cert, "--key", secret, "run", "n", "true").start()
	require.Zero(t, with.code())
	environment := prepare(t, cluster.Endpoints(), "run", "n", "true")
	environment.cmd.Env = append(environment.cmd.Env, "ETCDCTL_INSECURE_SKIP_TLS_VERIFY=true", "ETCDCTL_CERT="+cert, "ETCDCTL_KEY="+secret)
	require.Zero(t, environment.start().code())
	without := prepare(t, cluster.Endpoints(), "--insecure-skip-tls-verify", "--command-timeout", "1s", "run", "n", "true").start()
	require.Equal(t, 69, without.code())
	complaint(t, without)
}

func TestEveryFlagOfTheConnectionHasAVariable(t *testing.T) {
	c := newConnection(pflag.NewFlagSet("", pflag.ContinueOnError))
	values := map[string]string{
		"ETCDCTL_ENDPOINTS": "a:1,b:2", "ETCDCTL_CACERT": "ca", "ETCDCTL_CERT": "cert", "ETCDCTL_KEY": "key",
		"ETCDCTL_USER": "u", "ETCDCTL_PASSWORD": "p", "ETCDCTL_AUTH_JWT_TOKEN": "jwt",
		"ETCDCTL_DIAL_TIMEOUT": "3s", "ETCDCTL_COMMAND_TIMEOUT": "4s", "ETCDCTL_KEEPALIVE_TIME": "11s", "ETCDCTL_KEEPALIVE_TIMEOUT": "12s",
		"ETCDCTL_INSECURE_TRANSPORT": "false", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY": "true", "ETCDCTL_INSECURE_DISCOVERY": "false",
		"ETCDCTL_DISCOVERY_SRV": "example.org", "ETCDCTL_DISCOVERY_SRV_NAME": "s",
		"ETCDCTL_MAX_REQUEST_BYTES": "5", "ETCDCTL_MAX_RECV_BYTES": "6", "ETCDCTL_DEBUG": "true",
	}
	defaults := map[string]string{}
	c.flags.VisitAll(func(f *pflag.Flag) { defaults[f.Name] = f.Value.String() })
	require.Len(t, defaults, len(values))
	asked := map[string]bool{}
	require.NoError(t, c.readEnvironment(func(name string) (string, bool) {
		asked[name] = true
		value, ok := values[name]
		return value, ok
	}))
	require.Len(t, asked, len(values))
	c.flags.VisitAll(func(f *pflag.Flag) { require.NotEqual(t, defaults[f.Name], f.Value.String(), f.Name) })

	wrong := newConnection(pflag.NewFlagSet("", pflag.ContinueOnError))
	err := wrong.readEnvironment(func(name string) (string, bool) { return "soon", name == "ETCDCTL_DIAL_TIMEOUT" })
	require.ErrorContains(t, err, `ETCDCTL_DIAL_TIMEOUT="soon"`)
	require.Equal(t, exitMistake, exitCode(err))
}

func TestDomainWithoutRecordsIsUnavailable(t *testing.T) {
	t.Parallel()
	r := start(t, "--discovery-srv", "nosuch.invalid", "run", name(t), "true")
	require.Equal(t, 69, r.code())
	require.Contains(t, complaint(t, r), "SRV records of nosuch.invalid")
}
