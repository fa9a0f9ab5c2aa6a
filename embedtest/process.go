package embedtest

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

const (
	// drainTimeout bounds how long a graceful stop lets requests finish. Watch
	// and keep-alive streams never do.
	drainTimeout = 100 * time.Millisecond
	// handlerTimeout bounds the wait for requests that are being handled when a
	// member ends. What remains is failed by the server's own end.
	handlerTimeout = 200 * time.Millisecond
)

// process is one run of a member, from a start to a stop or kill.
type process struct {
	member   *Member
	etcd     *embed.Etcd
	listener *cuttingListener

	serving  chan struct{} // closed when clients are being served
	stopping chan struct{} // closed by end: whatever a fault holds is let go
	served   chan struct{} // closed when serve has returned

	mu    sync.Mutex
	grpc  *grpc.Server // nil until the member is ready
	ended bool
}

// launch starts the member and returns before it is ready: the first of several
// members is ready only when others have joined it.
func (c *Cluster) launch(m *Member) error {
	shrinkLogSegments()
	cfg, err := c.etcdConfig(m)
	if err != nil {
		return err
	}
	p := &process{
		member:   m,
		serving:  make(chan struct{}),
		stopping: make(chan struct{}),
		served:   make(chan struct{}),
	}
	if p.listener, err = c.settings.listenForClients(socket(m.endpoint)); err != nil {
		return err
	}
	if p.etcd, err = startEtcd(cfg); err != nil {
		p.listener.cut()
		return fmt.Errorf("embedtest: start %s: %w", m.name, err)
	}
	c.admit(m, p)
	c.recordFrom(p)
	m.peers.serve(etcdhttp.NewPeerHandler(cfg.GetLogger(), p.etcd.Server))
	go p.serve(cfg) // ends with end
	return nil
}

// serve answers clients as soon as the member is ready, as etcd itself does.
func (p *process) serve(cfg *embed.Config) {
	defer close(p.served)
	server := p.etcd.Server
	select {
	case <-server.ReadyNotify():
	case <-server.StopNotify():
		return
	case <-p.stopping:
		return
	}

	loopback := v3client.New(server)
	if p.member.cluster.settings.virtualTime {
		loopback.Watcher = newWatcher(adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server)))
	}
	defer func() { _ = loopback.Close() }()
	answering := v3rpc.Server(server, p.member.cluster.serverTLS, nil,
		grpc.ChainUnaryInterceptor(p.interceptUnary),
		grpc.ChainStreamInterceptor(p.interceptStream),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.GRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    cfg.GRPCKeepAliveInterval,
			Timeout: cfg.GRPCKeepAliveTimeout,
		}),
	)
	v3lockpb.RegisterLockServer(answering, v3lock.NewLockServer(loopback))
	v3electionpb.RegisterElectionServer(answering, v3election.NewElectionServer(loopback))

	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		answering.Stop()
		return
	}
	p.grpc = answering
	p.mu.Unlock()

	close(p.serving)
	_ = answering.Serve(p.listener)
}

// drain refuses new requests and gives those under way a moment to finish.
func (p *process) drain() {
	p.mu.Lock()
	answering := p.grpc
	p.mu.Unlock()
	if answering == nil {
		return
	}
	drained := make(chan struct{})
	go func() { // ends at the latest when end stops the server
		defer close(drained)
		answering.GracefulStop()
	}()
	select {
	case <-drained:
	case <-time.After(drainTimeout):
	}
}

// end stops the member without a word to its peers. It needs no quorum and no
// cooperation from clients.
func (p *process) end() {
	p.mu.Lock()
	p.ended = true
	answering := p.grpc
	p.mu.Unlock()

	close(p.stopping)
	p.member.peers.serve(nil)
	p.listener.cut()
	handlersDone := make(chan struct{})
	go func() { // awaited below
		defer close(handlersDone)
		if answering != nil {
			answering.Stop()
		}
	}()
	select {
	case <-handlersDone:
	case <-time.After(handlerTimeout):
	}
	// HardStop comes before Close, which on its own would try to hand over the
	// leadership and wait for seconds if nobody takes it.
	p.etcd.Server.HardStop()
	p.etcd.Close()
	<-handlersDone
	<-p.served
}

func (p *process) server() *etcdserver.EtcdServer { return p.etcd.Server }
