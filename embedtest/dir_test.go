package embedtest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
)

// opening returns Open's error, and fails if Open takes longer than it may on a loaded machine.
func opening(t *testing.T, options ...embedtest.Option) error {
	t.Helper()
	opened := make(chan error, 1)
	go func() {
		c, err := embedtest.Open(options...)
		if err == nil {
			err = c.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-time.After(2 * patience):
		require.FailNow(t, "Open hangs")
		return nil
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			options := []embedtest.Option{embedtest.WithDir(t.TempDir()), embedtest.WithSize(size)}
			c := embedtest.Start(t, options...)
			put(t, c.Client(t), "k", "v")
			for range 2 {
				require.ErrorContains(t, opening(t, options...), "another cluster uses")
			}
			for _, m := range c.Members() { // the directory is the cluster's own without them too
				m.Kill()
			}
			require.ErrorContains(t, opening(t, options...), "another cluster uses")
			for _, m := range c.Members() {
				require.NoError(t, m.Restart())
			}
			require.Equal(t, "v", get(t, c.Client(t), "k"))
			closesSoon(t, c)
			require.NoError(t, opening(t, options...))
		})
	}
}

func TestTheDatabaseHasEtcdsQuota(t *testing.T) {
	const megabyte = 1 << 20
	client := embedtest.Start(t).Client(t)
	for range 70 {
		put(t, client, "k", strings.Repeat("v", megabyte))
	}

	small := embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.QuotaBackendBytes = megabyte }))
	client = small.Client(t)
	var err error
	for range 10 {
		if _, err = client.Put(within(t, patience), "k", strings.Repeat("v", megabyte/2)); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
}

func TestEtcdCompactsByItselfWhereAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := embedtest.Start(t, embedtest.WithVirtualTime(), embedtest.WithConfig(func(cfg *embed.Config) {
			cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "10s"
		}))
		client := c.Client(t)
		put(t, client, "k", "old")
		first := header(t, client).Revision
		put(t, client, "k", "new")
		time.Sleep(time.Minute)
		_, err := client.Get(within(t, patience), "k", clientv3.WithRev(first))
		require.ErrorIs(t, err, rpctypes.ErrCompacted)
		require.Equal(t, "new", get(t, client, "k"))
	})
}
