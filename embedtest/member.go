package embedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

const (
	transferTimeout = 2 * time.Second
	restartTimeout  = 15 * time.Second
)

var errDown = errors.New("member is down")

// Member is one etcd server of a cluster. All its methods are safe for concurrent
// use; Stop, Kill and Restart of one member happen one after the other.
type Member struct {
	cluster  *Cluster
	name     string
	endpoint string
	peers    *peerServer

	lifecycle sync.Mutex // held while the member starts or ends
	joins     bool       // a running cluster, at the next start; guarded by lifecycle
	removed   bool       // for good; guarded by lifecycle
	process   atomic.Pointer[process]
	id        atomic.Uint64 // etcd's member ID; 0 before the first start

	isolated bool // guarded by the cluster's topology
}

// Name returns the member's name in etcd: m0, m1 and so on.
func (m *Member) Name() string { return m.name }

// Endpoint returns the member's client address, the same in every run.
func (m *Member) Endpoint() string { return m.endpoint }

// Server returns the etcd server inside, nil while the member is down. It gives access to what this package does not
// offer. Do not stop it directly: that breaks the cluster.
func (m *Member) Server() *etcdserver.EtcdServer {
	p := m.process.Load()
	if p == nil {
		return nil
	}
	return p.server()
}

// Stop stops the member as an operator would: it hands the leadership over if others can take it, lets requests
// finish for up to 100 ms (streams never do) and ends. It takes up to two seconds if no member takes over. It does
// nothing if the member is down.
func (m *Member) Stop() {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	p := m.process.Load()
	if p == nil {
		return
	}
	m.handOver()
	p.drain()
	m.end(p)
}

// handOver is etcd's own leadership transfer, given up sooner than after etcd's
// five seconds and when the cluster closes.
func (m *Member) handOver() {
	if len(m.cluster.Members()) == 1 || m.cluster.Leader() != m {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	for _, other := range m.cluster.Members() {
		if other == m || other.Server() == nil || other.isIsolated() {
			continue
		}
		if m.cluster.MoveLeader(ctx, other) == nil {
			return
		}
	}
}

// Kill ends the member abruptly: no leadership transfer, no answer to requests
// under way, all connections cut. It does nothing if the member is down.
//
// It ends a server, not a process. The writes that etcd has handed to the operating system survive, its files are
// closed in good order, and the database commits pending writes. So a torn write or a lost disk cache cannot be
// tested with it.
func (m *Member) Kill() {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if p := m.process.Load(); p != nil {
		m.end(p)
	}
}

// Restart starts the member again on its data and its addresses, after stopping
// it with [Member.Stop] if it runs. It returns when the member serves clients; or
// without waiting for that, if too few members are up and connected for a quorum.
// It fails when the cluster is closed, when the member has been removed, when etcd
// refuses to start, or when the member does not serve within 15 s.
//
// Server-side faults, and the isolation of this and of other members, stay in
// force. Connections are not restored: clients dial again.
func (m *Member) Restart() error {
	m.Stop()
	if err := m.launch(); err != nil {
		return err
	}
	if !m.cluster.quorumWith(m) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	return m.awaitServing(ctx)
}

func (m *Member) launch() error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	return m.launchLocked()
}

// launchLocked requires lifecycle.
func (m *Member) launchLocked() error {
	select {
	case <-m.cluster.closing:
		return errClosed
	default:
	}
	if m.removed {
		return fmt.Errorf("embedtest: %s: %w", m.name, errRemoved)
	}
	if m.process.Load() != nil {
		return nil // somebody else was faster
	}
	if err := m.cluster.launch(m); err != nil {
		return err
	}
	m.joins = false
	return nil
}

func (m *Member) awaitServing(ctx context.Context) error {
	p := m.process.Load()
	if p == nil {
		return fmt.Errorf("embedtest: %s: %w", m.name, errDown)
	}
	select {
	case <-p.serving:
		return nil
	case <-p.served:
		return fmt.Errorf("embedtest: %s ended before it served", m.name)
	case <-m.cluster.closing:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("embedtest: %s does not serve: %w", m.name, ctx.Err())
	}
}

// end requires lifecycle.
func (m *Member) end(p *process) {
	m.process.Store(nil)
	p.end()
}

// endForGood is for Close. A start of a member checks for closing under the same lock,
// so no member comes up afterwards.
func (m *Member) endForGood() { m.Kill() }

func (m *Member) etcdID() types.ID { return types.ID(m.id.Load()) }
