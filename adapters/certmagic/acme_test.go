package certmagiclock_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// authority is pebble, the certificate authority that Let's Encrypt tests with. It prints its address and its root
// certificate. At /issued it says how many certificates it has issued, at /accounts how many accounts it has.
func authority() error {
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	signer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	front := wfe.New(quiet, store, va.New(quiet, 0, 0, false, "", store), signer, nil, false, false, 0, 0)
	acme := front.Handler()
	var issued, accounts atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/issued":
			_, _ = fmt.Fprint(w, issued.Load())
			return
		case r.URL.Path == "/accounts":
			_, _ = fmt.Fprint(w, accounts.Load())
			return
		case strings.HasPrefix(r.URL.Path, "/finalize-order/"):
			issued.Add(1)
		case r.URL.Path == "/sign-me-up":
			accounts.Add(1)
		}
		acme.ServeHTTP(w, r)
	}))
	fmt.Println(s.URL + wfe.DirectoryPath)
	fmt.Println(base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// server is a process that needs a certificate. While it proves that the name is its own it holds the lock: it prints
// "challenge" and waits for a line. In the end it prints a digest of the certificate that is in the storage.
func server() error {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv("ENDPOINTS"), ","), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	defer sessions.Close(context.Background())
	lost := make(chan struct{}, 1)
	storage := certmagiclock.NewStorage(client, sessions, "certmagic", certmagiclock.WithOnLost(func(string, error) {
		lost <- struct{}{}
	}))
	root, err := base64.StdEncoding.DecodeString(os.Getenv("ROOT"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: zap.NewNop()})
	issuer := certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA: os.Getenv("AUTHORITY"), Email: "admin@example.com", Agreed: true, TrustedRoots: roots,
		DNS01Solver: challenge{bufio.NewScanner(os.Stdin)}, Logger: zap.NewNop(),
	})
	config.Issuers = []certmagic.Issuer{issuer}
	if err := config.ObtainCertSync(context.Background(), "example.com"); err != nil {
		return err
	}
	if os.Getenv("EXPECT") == "loss" {
		<-lost
		fmt.Println("lost")
	}
	stored, err := storage.Load(context.Background(), certmagic.StorageKeys.SiteCert(issuer.IssuerKey(), "example.com"))
	if err != nil {
		return err
	}
	fmt.Printf("%x\n", sha256.Sum256(stored))
	return nil
}

type challenge struct{ in *bufio.Scanner }

func (c challenge) Present(context.Context, acme.Challenge) error {
	fmt.Println("challenge")
	c.in.Scan()
	return nil
}

func (challenge) CleanUp(context.Context, acme.Challenge) error { return nil }

// site is a certificate authority and an etcd, for servers of one name.
type site struct {
	cluster *embedtest.Cluster
	url     string
	root    string
}

func newSite(t *testing.T) *site {
	p := start(t, "authority", "PEBBLE_VA_ALWAYS_VALID=1", "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	return &site{cluster: embedtest.Start(t), url: p.line(t), root: p.line(t)}
}

func (s *site) serve(t *testing.T, env ...string) *process {
	return start(t, "server", append(env, "AUTHORITY="+s.url, "ROOT="+s.root,
		"ENDPOINTS="+strings.Join(s.cluster.Endpoints(), ","))...)
}

// count asks the authority how many of something it has.
func (s *site) count(t *testing.T, what string) string {
	root, err := base64.StdEncoding.DecodeString(s.root)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.RootCAs = roots
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(s.url[:strings.LastIndexByte(s.url, '/')] + "/" + what)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

func (p *process) answerChallenge(t *testing.T) {
	_, err := fmt.Fprintln(p.in, "go on")
	require.NoError(t, err)
}

func TestProcessesObtainOneCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	servers := []*process{s.serve(t), s.serve(t), s.serve(t)}
	digests := map[string]int{}
	for _, p := range servers {
		p.answerChallenge(t)
	}
	for _, p := range servers {
		line := p.line(t)
		if line == "challenge" {
			digests[line]++
			line = p.line(t)
		}
		digests[line]++
		require.NoError(t, p.Wait())
	}
	require.Equal(t, 1, digests["challenge"], "one has proved that the name is its own")
	require.Len(t, digests, 2, "and all have the same certificate: %v", digests)
	require.Equal(t, "1", s.count(t, "issued"))
	require.Equal(t, "1", s.count(t, "accounts"))
}

func TestAKilledProcessHandsTheWorkOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.serve(t)
	require.Equal(t, "challenge", first.line(t))
	second := s.serve(t)
	require.Eventually(t, func() bool { return waiters(t, s.cluster) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Process.Kill())
	require.Equal(t, "challenge", second.line(t))
	second.answerChallenge(t)
	require.Len(t, second.line(t), 64)
	require.NoError(t, second.Wait())
	require.Equal(t, "1", s.count(t, "issued"))
}

// A process that was suspended beyond its TTL goes on: certmagic cannot be stopped. It obtains a second certificate,
// which is valid too, and reports the loss.
func TestASuspendedProcessReportsItsLoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.serve(t, "EXPECT=loss")
	require.Equal(t, "challenge", first.line(t))
	second := s.serve(t)
	require.Eventually(t, func() bool { return waiters(t, s.cluster) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, "challenge", second.line(t))
	second.answerChallenge(t)
	require.Len(t, second.line(t), 64)
	require.NoError(t, second.Wait())

	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	first.answerChallenge(t)
	require.Equal(t, "lost", first.line(t))
	require.Len(t, first.line(t), 64)
	require.NoError(t, first.Wait())
	require.Equal(t, "2", s.count(t, "issued"))
}
