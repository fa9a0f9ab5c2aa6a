package embedtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Link is the network between one client and the members. A new link is faultless. Its faults concern the given
// members, or all if none is given, and last until they are healed. A later call for the same member replaces an
// earlier one that it contradicts. All methods are safe for concurrent use.
//
// A link does not reach other clients, the members' connections with each other,
// nor what a member does with a request that has already arrived.
type Link struct {
	cluster *Cluster

	mu      sync.Mutex
	paths   map[*Member]*path
	changed chan struct{} // closed and replaced by every change of a path
	closed  bool
	conns   sync.WaitGroup // goroutines of the connections
}

// path is the network to one member, guarded by the link's mu.
type path struct {
	blackhole bool
	cut       bool
	delay     time.Duration
	conns     map[*linkConn]struct{}
}

// Link returns a client whose connections all run through a network of its own.
// Both are closed by tb's Cleanup.
func (c *Cluster) Link(tb testing.TB) (*clientv3.Client, *Link) {
	tb.Helper()
	client, l, err := c.newLink(c.timeoutIn(tb))
	if err != nil {
		tb.Fatalf("embedtest: new link: %v", err)
	}
	tb.Cleanup(func() {
		closeClient(client)
		l.Close()
	})
	return client, l
}

// NewLink is [Cluster.Link] for use without a test. It takes 30 s at most. The caller must close the
// client and then the link.
func (c *Cluster) NewLink() (*clientv3.Client, *Link, error) { return c.newLink(tokenTimeout) }

func (c *Cluster) newLink(timeout time.Duration) (*clientv3.Client, *Link, error) {
	l := &Link{cluster: c, paths: map[*Member]*path{}, changed: make(chan struct{})}
	client, err := c.newClient(timeout, c.clientConfig(c.Endpoints(), grpc.WithContextDialer(l.dial)))
	if err != nil {
		return nil, nil, err
	}
	if !c.addLink(l) {
		return nil, nil, errors.Join(errClosed, client.Close())
	}
	return client, l, nil
}

// Blackhole stops all packets: there is no answer and no reset, and new connections hang until their context ends.
// Bytes that are sent meanwhile, up to 4 MiB per connection and direction, are delivered after Heal, as TCP would
// retransmit them. So a request whose caller has given up may still be applied, or may not, since its cancellation
// arrives with it. Where a test needs the late request for certain, use [Cluster.Hold]. Beyond 4 MiB writes block.
func (l *Link) Blackhole(members ...*Member) {
	l.change(members, func(p *path) { p.blackhole, p.cut = true, false })
}

// Cut resets the connections and refuses new ones. What was on the way is lost.
func (l *Link) Cut(members ...*Member) {
	l.change(members, func(p *path) {
		p.cut, p.blackhole = true, false
		for conn := range p.conns {
			conn.reset()
		}
	})
}

// Delay makes everything arrive d later, in each direction: a round trip takes 2d longer. Order and throughput stay.
// It also delays bytes on the way, and d = 0 ends it. A black hole or a cut stays in force.
func (l *Link) Delay(d time.Duration, members ...*Member) {
	l.change(members, func(p *path) { p.delay = d })
}

// Heal ends every fault of the link to the members. What a black hole or a delay
// has kept back is delivered at once, in order, on connections that still exist.
// Connections that were cut stay dead; clients dial again by themselves.
func (l *Link) Heal(members ...*Member) {
	l.change(members, func(p *path) { p.blackhole, p.cut, p.delay = false, false, 0 })
}

// Close resets all connections, refuses new ones for ever, and waits for the
// link's goroutines. It may be called more than once. It does not close the
// client, which goes on dialling until it is closed.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	for _, p := range l.paths {
		for conn := range p.conns {
			conn.reset()
		}
	}
	l.announce()
	l.mu.Unlock()
	l.conns.Wait()
	l.cluster.dropLink(l)
}

func (l *Link) change(members []*Member, apply func(*path)) {
	all := len(members) == 0
	if all {
		members = l.cluster.Members()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if all { // a removed member's connections may be there still
		members = slices.AppendSeq(members, maps.Keys(l.paths))
	}
	for _, m := range members {
		if m.cluster != l.cluster {
			panic(fmt.Sprintf("embedtest: %s belongs to another cluster", m.name))
		}
		apply(l.pathTo(m))
	}
	l.announce()
}

// pathTo requires mu.
func (l *Link) pathTo(m *Member) *path {
	if l.paths[m] == nil {
		l.paths[m] = &path{conns: map[*linkConn]struct{}{}}
	}
	return l.paths[m]
}

// announce requires mu.
func (l *Link) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// dial is called by gRPC.
func (l *Link) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
	name := socket(endpoint)
	m := l.cluster.memberAt(name)
	if m == nil {
		return nil, refused
	}
	for {
		l.mu.Lock()
		p, changed := l.pathTo(m), l.changed
		if l.closed || p.cut {
			l.mu.Unlock()
			return nil, refused
		}
		if !p.blackhole {
			l.mu.Unlock()
			return l.connect(ctx, p, name)
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *Link) connect(ctx context.Context, p *path, name string) (net.Conn, error) {
	server, err := l.cluster.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || p.cut {
		_ = server.Close()
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNRESET}
	}
	return l.startConn(p, server), nil
}

func socket(endpoint string) string { return strings.TrimPrefix(endpoint, endpointScheme) }

// memberAt returns the member that has the socket, or nil.
func (c *Cluster) memberAt(name string) *Member {
	for _, m := range c.Members() {
		if socket(m.endpoint) == name {
			return m
		}
	}
	return nil
}

func (c *Cluster) addLink(l *Link) bool {
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	if c.links == nil {
		return false
	}
	c.links[l] = struct{}{}
	return true
}

func (c *Cluster) dropLink(l *Link) {
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	delete(c.links, l)
}

// takeLinks returns the links and makes later ones fail.
func (c *Cluster) takeLinks() []*Link {
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	var taken []*Link
	for l := range c.links {
		taken = append(taken, l)
	}
	c.links = nil
	return taken
}
