package fairqueue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
)

// trouble is what a watch has to survive without a change that is missed or reported by mistake.
type trouble struct {
	size  int // of the cluster
	begin func(*testing.T, *embedtest.Cluster, *embedtest.Link, *spy) (over func())
}

func ended() {}

// elsewhere writes so much that a compaction has something to compact.
func elsewhere(t *testing.T, c *embedtest.Cluster) {
	client := c.Client(t)
	for range 20 {
		put(t, client, "elsewhere")
	}
}

func compact(t *testing.T, c *embedtest.Cluster) {
	elsewhere(t, c)
	_, err := c.Compact(within(t, patience))
	require.NoError(t, err)
}

func restartAll(t *testing.T, c *embedtest.Cluster) {
	for _, m := range c.Members() {
		require.NoError(t, m.Restart())
	}
}

var troubles = map[string]trouble{
	"no trouble": {1, func(*testing.T, *embedtest.Cluster, *embedtest.Link, *spy) func() { return ended }},
	"compaction": {1, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link, _ *spy) func() {
		compact(t, c)
		return ended
	}},
	"cut connection": {1, func(_ *testing.T, _ *embedtest.Cluster, link *embedtest.Link, _ *spy) func() {
		link.Cut()
		return func() { link.Heal() }
	}},
	"restart": {1, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link, _ *spy) func() {
		restartAll(t, c)
		return ended
	}},
	"swallowed events": {1, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link, watches *spy) func() {
		fault := c.SwallowWatchEvents()
		return func() {
			watches.await(t, watches.seen()+2) // a look has been made, and what came first is past
			fault.Heal()
		}
	}},
	"broken watches": {1, func(t *testing.T, c *embedtest.Cluster, link *embedtest.Link, _ *spy) func() {
		fault := c.Refuse("Watch", rpctypes.ErrGRPCNoLeader, embedtest.Times(3))
		link.Cut()
		link.Heal()
		return func() {
			require.NoError(t, fault.Wait(within(t, patience)))
			fault.Heal()
		}
	}},
	"watches that are not created": {1, func(_ *testing.T, c *embedtest.Cluster, link *embedtest.Link, _ *spy) func() {
		c.LoseRequest("Watch", embedtest.Once())
		link.Cut()
		link.Heal()
		return ended
	}},
	"change of leader": {3, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link, _ *spy) func() {
		for _, m := range c.Members() {
			require.NoError(t, c.MoveLeader(within(t, patience), m))
		}
		return ended
	}},
	"restart of all": {3, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link, _ *spy) func() {
		restartAll(t, c)
		return ended
	}},
}
