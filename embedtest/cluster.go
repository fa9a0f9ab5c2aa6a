package embedtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

const (
	endpointScheme = "unix://"
	// longestSocketDir leaves room for the name of a socket within the 104 bytes
	// that the narrowest systems allow for its path.
	longestSocketDir = 90
	startTimeout     = 30 * time.Second
	pollInterval     = time.Millisecond
)

// Cluster is a running etcd cluster. All its methods are safe for concurrent use.
type Cluster struct {
	settings settings
	log      *logBuffer
	tempDir  string // sockets, and the data unless a directory was given
	dataDir  string
	lock     *fileutil.LockedFile // of a directory that was given; nil without
	faults   faultList
	calls    callCounter

	serverTLS, clientTLS *tls.Config // nil without TLS

	closing   chan struct{} // closed by Close: waits are given up
	closeOnce sync.Once
	closeErr  error

	reconfiguring sync.Mutex // held while members come or go for good, or lose their data
	nextName      int        // of a member; guarded by reconfiguring
	generation    int        // of the data; guarded by reconfiguring

	membersMu sync.Mutex
	members   []*Member

	topology sync.Mutex // guards the members' isolated, and which members are cut off from each other

	linksMu sync.Mutex
	links   map[*Link]struct{}

	historiesMu sync.Mutex
	histories   map[*History]struct{} // that are being recorded; nil after Close
}

// Start starts a cluster and waits until it serves. It is stopped, and its data
// removed, by tb's Cleanup. If the test has failed by then, the last 2,000 lines
// that etcd and the clients logged become part of the test's log; otherwise
// nothing is shown. A cluster that does not start ends the test with Fatal.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	log := newLogBuffer()
	c, err := open(log, opts)
	if err != nil {
		tb.Fatalf("%v\n%s", err, log)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of the etcd cluster:\n%s", c.Log())
		}
		if err := c.Close(); err != nil {
			tb.Errorf("close the etcd cluster: %v", err)
		}
	})
	return c
}

// Open starts a cluster without a test and waits, up to 30 s, until all its
// members serve. The caller must call Close. If it fails nothing is left behind,
// and the error carries the end of etcd's log.
func Open(opts ...Option) (*Cluster, error) {
	log := newLogBuffer()
	c, err := open(log, opts)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	return c, nil
}

func open(log *logBuffer, opts []Option) (*Cluster, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		settings: s,
		log:      log,
		calls:    newCallCounter(),
		closing:  make(chan struct{}),
		links:    map[*Link]struct{}{},

		histories: map[*History]struct{}{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.makeDirs(); err != nil {
		return err
	}
	if err := c.makeMembers(); err != nil {
		return err
	}
	if err := c.makeTLS(); err != nil {
		return err
	}
	for _, m := range c.Members() {
		if err := m.launch(); err != nil {
			return err
		}
	}
	return c.awaitStarted(ctx)
}

func (c *Cluster) awaitStarted(ctx context.Context) error {
	for _, m := range c.Members() {
		if err := m.awaitServing(ctx); err != nil {
			return err
		}
	}
	if err := c.awaitSettled(ctx); err != nil {
		return err
	}
	return c.enableAuth(ctx)
}

func (c *Cluster) makeDirs() error {
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	c.tempDir, c.dataDir = dir, dir
	if len(dir) > longestSocketDir {
		return fmt.Errorf("embedtest: the path of %s is too long for unix sockets: set TMPDIR to a shorter one", dir)
	}
	if c.settings.dir == "" {
		return nil
	}
	if c.dataDir, err = filepath.Abs(c.settings.dir); err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	if err := os.MkdirAll(c.dataDir, 0o700); err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	return c.lockDir()
}

func (c *Cluster) makeMembers() error {
	addresses, err := peerAddresses(c.dataDir, c.settings.size)
	if err != nil {
		return err
	}
	for _, named := range addresses {
		m := c.newMember(named[0])
		var number int
		if _, err := fmt.Sscanf(m.name, "m%d", &number); err != nil {
			return fmt.Errorf("embedtest: %s names a member %q", addressFile, m.name)
		}
		c.nextName = max(c.nextName, number+1)
		if len(addresses) > 1 {
			if m.peers, err = listenForPeers(named[1]); err != nil {
				return fmt.Errorf("embedtest: the address of a member is taken: %w", err)
			}
		}
		c.setMembers(append(c.Members(), m))
	}
	return c.recordPeerAddresses()
}

// Close stops all members abruptly, closes the links, and removes the data
// unless [WithDir] was given. It needs neither a quorum nor the clients'
// cooperation and returns within a second. Further calls wait for the first and
// return the same error. It does not close clients: those of [Cluster.NewClient]
// and [Cluster.NewLink] are the caller's to close, before or after.
func (c *Cluster) Close() error {
	c.closeOnce.Do(func() {
		close(c.closing)
		for _, l := range c.takeLinks() {
			l.Close()
		}
		var ends sync.WaitGroup
		members := c.Members()
		for _, m := range members {
			ends.Go(m.endForGood)
		}
		ends.Wait()
		c.stopHistories()
		for _, m := range members {
			m.peers.close()
		}
		if c.tempDir != "" {
			c.closeErr = os.RemoveAll(c.tempDir)
		}
		if c.lock != nil {
			c.closeErr = errors.Join(c.closeErr, c.lock.Close())
		}
	})
	return c.closeErr
}

// Endpoints returns the members' client addresses, also of those that are down.
// They are unix sockets that serve gRPC only, without etcd's HTTP handlers. In
// virtual time they are names that only this package's clients can use.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members() {
		endpoints = append(endpoints, m.endpoint)
	}
	return endpoints
}

// Members returns the members in the order in which they were started first.
func (c *Cluster) Members() []*Member {
	c.membersMu.Lock()
	defer c.membersMu.Unlock()
	return slices.Clone(c.members)
}

// Log returns the last 2,000 lines that the members and the clients of this
// package logged, the oldest first.
func (c *Cluster) Log() string { return c.log.String() }

// poll is for what etcd gives no signal for.
func (c *Cluster) poll(ctx context.Context, done func() bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-c.closing:
			return errClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
