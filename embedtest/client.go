package embedtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/closer"
)

const (
	connectTimeout = 5 * time.Second
	closeTimeout   = 10 * time.Second
	tokenTimeout   = 30 * time.Second // for a client without a test
	reportTime     = 5 * time.Second  // before a test's deadline, to say what is missing

	virtualReconnect = time.Second // an hour without a member takes many attempts, and so time
)

// reconnect makes a client find a restarted member within milliseconds; gRPC's
// defaults take about a second.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay:  time.Millisecond,
		Multiplier: 1.6,
		Jitter:     0.2,
		MaxDelay:   50 * time.Millisecond,
	},
	MinConnectTimeout: connectTimeout,
}

// Client returns a client of all members, closed by tb's Cleanup. It differs from
// a client with default configuration in two ways: it reconnects within 50 ms
// where gRPC's default back-off takes a second, and it logs into the cluster's
// log. In virtual time it differs in more (see the package documentation). With [WithTLS] it has the certificates, with
// [WithAuth] it is root's. Then it is authenticated first, which may take until 5 s before the test's deadline, and fails if
// all members are down.
func (c *Cluster) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return c.testClient(tb, c.clientConfig(c.Endpoints()))
}

// NewClient is [Cluster.Client] for use without a test. It takes 30 s at most. The caller must close the
// client.
func (c *Cluster) NewClient() (*clientv3.Client, error) {
	return c.newClient(tokenTimeout, c.clientConfig(c.Endpoints()))
}

// Client returns a client that knows this member only, closed by tb's Cleanup.
func (m *Member) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return m.cluster.testClient(tb, m.cluster.clientConfig([]string{m.endpoint}))
}

func (c *Cluster) testClient(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	client, err := c.newClient(c.timeoutIn(tb), cfg)
	if err != nil {
		tb.Fatalf("embedtest: new client: %v", err)
	}
	tb.Cleanup(func() { closeClient(client) })
	return client
}

// timeoutIn returns how long it may take to make a client in a test.
func (c *Cluster) timeoutIn(tb testing.TB) time.Duration {
	if c.settings.virtualTime {
		return tokenTimeout // a test in a bubble must not ask for its deadline
	}
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := t.Deadline(); ok {
			return max(time.Until(deadline)-reportTime, reportTime)
		}
		return math.MaxInt64
	}
	return tokenTimeout
}

// newClient makes a client, which authenticates its user first. That takes long on a busy machine, and fails
// while the leader changes.
func (c *Cluster) newClient(timeout time.Duration, cfg clientv3.Config) (*clientv3.Client, error) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(timeout, cancel)
	cfg.Context = ctx // not DialTimeout, on which the client's Lease depends too
	client, err := clientv3.New(cfg)
	for ; leaderIsMissing(err); client, err = clientv3.New(cfg) {
		time.Sleep(pollInterval)
	}
	if !timer.Stop() {
		if err == nil {
			err = client.Close()
		}
		return nil, fmt.Errorf("no answer to the user's password in %v: %w", timeout, cmp.Or(err, context.Canceled))
	}
	if err == nil && c.settings.virtualTime {
		client.Watcher = newWatcher(etcdserverpb.NewWatchClient(client.ActiveConnection()))
	}
	return client, err
}

func (c *Cluster) clientConfig(endpoints []string, opts ...grpc.DialOption) clientv3.Config {
	connect := reconnect
	if c.settings.virtualTime {
		opts = append([]grpc.DialOption{grpc.WithContextDialer(c.dial)}, opts...)
		connect.Backoff.MaxDelay = virtualReconnect
	}
	cfg := clientv3.Config{
		Endpoints:   endpoints,
		DialOptions: append(opts, grpc.WithConnectParams(connect)),
		Logger:      c.log.logger("client"),
		TLS:         c.TLSConfig(),
	}
	if users := c.settings.users; len(users) > 0 {
		cfg.Username, cfg.Password = users[0].Name, users[0].Password
	}
	return cfg
}

func leaderIsMissing(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaderChanged) || errors.Is(err, rpctypes.ErrNoLeader) ||
		errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) || errors.Is(err, rpctypes.ErrTimeout)
}

func closeClient(client *clientv3.Client) { closer.Close(client, closeTimeout) }
