package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

var (
	withPrefix = clientv3.WithPrefix()
	withLease  = clientv3.WithLease
)

// complaint requires one line on standard error and returns it.
func complaint(t *testing.T, r *tool) string {
	t.Helper()
	text := r.errors.String()
	require.Equal(t, 1, strings.Count(text, "\n"), text)
	require.True(t, strings.HasPrefix(text, "etcdlock: "), text)
	return text
}

func TestMistakesAreToldInOneLine(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o600))
	executable := filepath.Join(t.TempDir(), "executable")
	writeExecutable(t, executable, "text")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--nosuch", "n", "true"}, 64, "unknown flag: --nosuch"},
		{[]string{"nosuch"}, 64, `unknown command "nosuch"`},
		{[]string{"nosuch"}, 64, "see etcdlock --help"},
		{[]string{"help", "nosuch"}, 64, `unknown command "nosuch"`},
		{[]string{"completion", "tcsh"}, 64, `unknown command "tcsh"`},
		{[]string{"run", "--nosuch", "n", "true"}, 64, "see etcdlock run --help"},
		{[]string{"run", "n", "--wait", "1", "true"}, 64, "--wait comes after NAME"},
		{[]string{"elect", "n", "--id", "x", "--", "true"}, 64, "--id comes after NAME"},
		{[]string{"--endpoints", "", "ls"}, 64, "--endpoints has no address"},
		{[]string{"run"}, 64, "requires at least 1 arg"},
		{[]string{"run", "", "true"}, 64, "invalid name"},
		{[]string{"run", strings.Repeat("x", 600), "true"}, 64, "invalid name"},
		{[]string{"run", "n", plain}, 126, "permission denied"},
		{[]string{"run", "n", executable}, 126, "exec format error"},
		{[]string{"run", "n", "/"}, 126, "is a directory"},
		{[]string{"run", "n", "no-such-program"}, 127, "not found"},
		{[]string{"run", "n", "./no-such-program"}, 127, "no such file"},
		{[]string{"run", "--ttl", "4s", "--grace", "3s", "n", "true"}, 64, "at most ttl/2 - 1s = 1s"},
		{[]string{"run", "--ttl", "1", "n", "true"}, 64, "at least 2s"},
		{[]string{"run", "--ttl", "soon", "n", "true"}, 64, "invalid"},
		{[]string{"run", "--on-lost", "cry", "n", "true"}, 64, "kill or warn"},
		{[]string{"run", "--slots", "n", "true"}, 64, "need --limit"},
		{[]string{"run", "--limit", "2", "-s", "n", "true"}, 64, "cannot be combined"},
		{[]string{"run", "--cacert", "/no/such", "n", "true"}, 64, "no such file"},
		{[]string{"held", "x"}, 64, "unknown command"},
	} {
		r := start(t, c.args...)
		require.Equal(t, c.code, r.code(), c.args)
		require.Contains(t, complaint(t, r), c.says)
	}
	require.Empty(t, keys(t, "n"))
}

func TestEtcdThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	r := prepare(t, []string{"127.0.0.1:1"}, "run", "--command-timeout", "1s", "n", "true").start()
	require.Equal(t, 69, r.code())
	require.Contains(t, complaint(t, r), "connection refused")
}

func TestWrongPasswordAndMissingPermissionAreRefused(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("secret",
		embedtest.User{Name: "reader", Password: "r", Grants: []embedtest.Grant{embedtest.Read("etcdlock/")}},
		embedtest.User{Name: "writer", Password: "w", Grants: []embedtest.Grant{embedtest.ReadWrite("etcdlock/")}}))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--user", "root:wrong"}, 77, "authentication failed"},
		{[]string{"--user", "root"}, 64, "has no password"},
		{nil, 77, "user name is empty"},
		{[]string{"--user", "reader:r"}, 77, "permission denied"},
		{[]string{"--user", "writer", "--password", "w"}, 0, ""},
	} {
		r := prepare(t, cluster.Endpoints(), append(c.args, "run", "n", "true")...).start()
		require.Equal(t, c.code, r.code(), c.args)
		if c.code != 0 {
			require.Contains(t, complaint(t, r), c.says)
		}
	}
	r := prepare(t, cluster.Endpoints(), "run", "n", "true")
	r.cmd.Env = append(r.cmd.Env, "ETCDCTL_USER=writer:w", "ETCDCTL_API=3", "ETCDCTL_NOSUCH=1", "ETCDLOCK_KEY=/no/such")
	require.Zero(t, r.start().code(), "from the environment")
	flag := prepare(t, cluster.Endpoints(), "--user", "writer:w", "run", "n", "true")
	flag.cmd.Env = append(flag.cmd.Env, "ETCDCTL_USER=reader:r")
	require.Zero(t, flag.start().code(), "a flag takes precedence")
}

func TestCertificateOfAnotherAuthorityIsUnavailable(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithTLS())
	other := filepath.Join(t.TempDir(), "ca.pem")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	r := prepare(t, cluster.Endpoints(), "run", "--cacert", other, "--command-timeout", "1s", "n", "true").start()
	require.Equal(t, 69, r.code())
	require.Contains(t, complaint(t, r), "certificate")

	trusting := prepare(t, cluster.Endpoints(), "run", "--insecure-skip-tls-verify", "n", "true").start()
	require.Zero(t, trusting.code())
}

func TestNoSpaceIsUnavailable(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	require.NoError(t, cluster.RaiseAlarm(within(t), 1))
	r := prepare(t, cluster.Endpoints(), "run", "n", "true").start()
	require.Equal(t, 69, r.code())
	require.Contains(t, complaint(t, r), "database space exceeded")
}
