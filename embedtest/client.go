package embedtest

import (
	"errors"
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
	dialTimeout    = 2 * time.Second
	connectTimeout = 5 * time.Second
	closeTimeout   = 10 * time.Second

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
// [WithAuth] it is root's; while the leader changes, it takes up to 5 s until root is authenticated.
func (c *Cluster) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	client, err := c.NewClient()
	if err != nil {
		tb.Fatalf("embedtest: new client: %v", err)
	}
	tb.Cleanup(func() { closeClient(client) })
	return client
}

// NewClient is [Cluster.Client] for use without a test. The caller must close the
// client.
func (c *Cluster) NewClient() (*clientv3.Client, error) {
	return c.newClient(c.clientConfig(c.Endpoints()))
}

// Client returns a client that knows this member only, closed by tb's Cleanup.
func (m *Member) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	client, err := m.cluster.newClient(m.cluster.clientConfig([]string{m.endpoint}))
	if err != nil {
		tb.Fatalf("embedtest: new client: %v", err)
	}
	tb.Cleanup(func() { closeClient(client) })
	return client
}

func (c *Cluster) newClient(cfg clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(cfg)
	// A user is authenticated when the client is made, which fails while the leader changes.
	for end := time.Now().Add(connectTimeout); leaderIsMissing(err) && time.Now().Before(end); client, err = clientv3.New(cfg) {
		time.Sleep(pollInterval)
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
		DialTimeout: dialTimeout,
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
		errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail)
}

func closeClient(client *clientv3.Client) { closer.Close(client, closeTimeout) }
