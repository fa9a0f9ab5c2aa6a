package embedtest

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.uber.org/zap"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdserver"
	serverversion "go.etcd.io/etcd/server/v3/etcdserver/version"
)

const (
	firstNudge = 10 * time.Millisecond
	laterNudge = 200 * time.Millisecond
)

// awaitSettled waits until every member knows the cluster's final version, the
// last entry that a new cluster writes by itself: from then on AppliedIndex moves
// only when somebody writes.
//
// A leader writes the version when it is elected. One start in fifty it misses
// that moment and looks again four seconds later, unless it is asked to.
func (c *Cluster) awaitSettled(ctx context.Context) error {
	for patience := firstNudge; ; patience = laterNudge {
		attempt, cancel := context.WithTimeout(ctx, patience)
		err := c.poll(attempt, c.settled)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("embedtest: the cluster does not settle: %w", ctx.Err())
		}
		if leader := c.Leader(); leader != nil {
			c.nudge(leader)
		}
	}
}

func (c *Cluster) settled() bool {
	final := semver.New(version.Version)
	for _, m := range c.Members() {
		server := m.Server()
		if server == nil {
			return false
		}
		current := server.ClusterVersion()
		if current == nil || current.Major != final.Major || current.Minor != final.Minor {
			return false
		}
	}
	return c.Leader() != nil
}

func (c *Cluster) nudge(leader *Member) {
	server := leader.Server()
	if server == nil {
		return
	}
	monitor := serverversion.NewMonitor(server.Logger(), etcdserver.NewServerVersionAdapter(server))
	if err := monitor.UpdateClusterVersionIfNeeded(); err != nil {
		server.Logger().Warn("the cluster's version is not decided", zap.Error(err))
	}
}
