package versions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// lazyServer is the one server of a release, which all tests share. It is started by the
// first of them and stopped by TestMain.
type lazyServer struct {
	once sync.Once
	etcd *etcd
}

// etcd is a running server.
type etcd struct {
	endpoint string
	version  string // as it says itself, 3.5.35
	etcdctl  string // path of the client of its version, or empty

	cmd *exec.Cmd
}

// start returns the release's server, or skips the test with the reason why there is none.
func (r *release) start(t *testing.T) *etcd {
	t.Helper()
	bin := r.binaries(t)
	r.server.once.Do(func() { r.server.etcd = launch(t, bin) })
	require.NotNil(t, r.server.etcd, "etcd %s did not start", r.name)
	return r.server.etcd
}

// launch starts a server with short ticks, which make the smallest TTL one second. Clients
// reach it through a socket in its own directory, and its peers, of which there are none, at
// whatever port is free: so no two servers are ever in each other's way.
func launch(t *testing.T, bin binaries) *etcd {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "etcd")
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }() // the server has a copy

	const client, peer = "unix://etcd:1", "http://127.0.0.1:0"
	cmd := exec.Command(bin.etcd,
		"--name=m", "--data-dir=data", "--initial-cluster=m="+peer,
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--heartbeat-interval=10", "--election-timeout=50",
		"--enable-grpc-gateway=false", "--logger=zap")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environment(), log, log
	endWithUs(cmd)
	require.NoError(t, cmd.Start())

	e := &etcd{endpoint: "unix://" + filepath.Join(dir, "etcd:1"), etcdctl: bin.etcdctl, cmd: cmd}
	ctx, c := within(t), e.client(t)
	for { // until it has elected itself
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Get(attempt, "ready")
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			e.stop()
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s is not ready: %v\n%s", bin.etcd, err, said)
		}
	}
	status, err := c.Status(ctx, e.endpoint)
	require.NoError(t, err)
	e.version = status.Version
	return e
}

func (e *etcd) stop() {
	_ = e.cmd.Process.Kill() // nothing in it is to be kept
	_ = e.cmd.Wait()
}

// client returns a client of its own, as another process would have.
func (e *etcd) client(t *testing.T, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := connect(e.endpoint, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func connect(endpoint string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialOptions: opts})
}

// position returns etcd's revision, and the index of its log, which counts every write, also
// those of leases.
func (e *etcd) position(t *testing.T, c *clientv3.Client) (revision int64, raft uint64) {
	t.Helper()
	status, err := c.Status(within(t), e.endpoint)
	require.NoError(t, err)
	return status.Header.Revision, status.RaftIndex
}
