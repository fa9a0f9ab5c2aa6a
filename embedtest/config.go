package embedtest

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

const (
	walSegmentBytes = 1 << 20
	largestSize     = 9
	defaultTokenTTL = 5 * time.Minute
	virtualCommit   = 10 * time.Second // instead of 100 ms: nobody can tell, and it takes time
)

// Option changes how [Start] and [Open] set up a cluster.
type Option interface{ apply(*settings) }

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// WithSize sets the number of members, 1 to 9. The default is 1: most tests
// need no second member, and one starts ten times faster than three.
func WithSize(n int) Option { return optionFunc(func(s *settings) { s.size = n }) }

// WithDir keeps the members' data in dir, which is created if it is missing and stays after Close. A later cluster
// with as many members can continue with it. The default is a temporary directory that Close removes. A directory
// that another cluster uses, in any process, is refused at once.
func WithDir(dir string) Option { return optionFunc(func(s *settings) { s.dir = dir }) }

// WithFsync makes etcd sync its files to the disk as it does in production. By
// default it does not: no test in one process can notice the difference, and every
// write is faster by the disk's latency.
func WithFsync() Option { return optionFunc(func(s *settings) { s.fsync = true }) }

// WithRealTicks gives the members etcd's default timing, a heartbeat every 100 ms and an election after 1 s, with a
// smallest lease TTL of 2 s. The default is 1 ms and 5 ms for one member, and 10 ms and 100 ms for more, with a
// smallest lease TTL of 1 s. In virtual time it is 200 ms and 1 s, with a smallest TTL of 2 s.
func WithRealTicks() Option { return optionFunc(func(s *settings) { s.realTicks = true }) }

// WithConfig passes the configuration of each member to change before each start of the member. It is for settings
// without an option here: limits such as MaxConcurrentStreams, MaxTxnOps and MaxRequestBytes, or the kind of
// AuthToken. Fields that this package does not set have etcd's defaults. Names, addresses, directories, the initial
// cluster, the gateway and the logger stay this package's: it sets them afterwards. A configuration that etcd refuses
// fails the start. Given several times, the functions are called in that order, each for one member at a time.
func WithConfig(change func(*embed.Config)) Option {
	return optionFunc(func(s *settings) { s.changes = append(s.changes, change) })
}

type settings struct {
	size        int
	dir         string
	fsync       bool
	realTicks   bool
	virtualTime bool
	tls         bool
	mutualTLS   bool
	users       []User // none without authentication; otherwise root comes first
	tokenTTL    time.Duration
	changes     []func(*embed.Config)
}

func newSettings(opts []Option) (settings, error) {
	s := settings{size: 1, tokenTTL: defaultTokenTTL}
	for _, o := range opts {
		o.apply(&s)
	}
	if s.size < 1 || s.size > largestSize {
		return s, fmt.Errorf("embedtest: size %d is not within 1 and %d", s.size, largestSize)
	}
	if err := s.checkVirtualTime(); err != nil {
		return s, err
	}
	return s, s.checkAuth()
}

// ticks returns the heartbeat interval and the election timeout. Several members
// need more time than one: under load, faster ticks cause elections of their own.
func (s settings) ticks() (heartbeat, election time.Duration) {
	switch {
	case s.realTicks:
		return 100 * time.Millisecond, time.Second
	case s.virtualTime: // where waiting costs nothing, but every tick does
		return 200 * time.Millisecond, time.Second
	case s.size == 1:
		return time.Millisecond, 5 * time.Millisecond
	default:
		return 10 * time.Millisecond, 100 * time.Millisecond
	}
}

// shrinkLogSegments keeps etcd from allocating 64 MB for every member's log. The
// size is a variable of etcd's package, the only global state touched here.
var shrinkLogSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })

// etcdConfig leaves every listener out: clients and peers are served by this
// package, which can thus cut them off at once and keep a port while a member is
// down (doc.go, invariant 2).
func (c *Cluster) etcdConfig(m *Member) (*embed.Config, error) {
	client, err := url.Parse(m.endpoint)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(m.peers.url())
	if err != nil {
		return nil, err
	}
	var initial []string
	for _, other := range c.Members() {
		initial = append(initial, other.name+"="+other.peers.url())
	}

	cfg := embed.NewConfig()
	c.settings.configure(cfg)
	cfg.Name = m.name
	cfg.Dir = c.memberDir(m)
	cfg.ListenClientUrls, cfg.ListenPeerUrls = nil, nil
	cfg.AdvertiseClientUrls = []url.URL{*client}
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.InitialCluster = strings.Join(initial, ",")
	cfg.InitialClusterToken = c.token()
	if m.joins {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(c.log.logger(m.name))
	return cfg, nil
}

func (c *Cluster) memberDir(m *Member) string { return filepath.Join(c.dataDir, m.name) }

// token is what etcd makes the IDs of.
func (c *Cluster) token() string { return fmt.Sprint(c.dataDir, c.generation) }

// configure sets what a user of this package may change.
func (s settings) configure(cfg *embed.Config) {
	heartbeat, election := s.ticks()
	cfg.TickMs = uint(heartbeat.Milliseconds())
	cfg.ElectionMs = uint(election.Milliseconds())
	cfg.UnsafeNoFsync = !s.fsync
	if s.virtualTime {
		cfg.BackendBatchInterval = virtualCommit
	}
	cfg.AuthTokenTTL = uint(s.tokenTTL / time.Second)
	cfg.StrictReconfigCheck = false // it needs all to be connected for five seconds
	cfg.BcryptCost = cheapestHash
	for _, change := range s.changes {
		change(cfg)
	}
}

var errClosed = errors.New("embedtest: cluster is closed")
