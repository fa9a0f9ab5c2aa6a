package embedtest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
	ctx := within(t, patience)
	var err error
	for err == nil { // the size is that of the last commit to disk
		_, err = client.Put(ctx, "k", strings.Repeat("v", megabyte/2))
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

func TestADirectoryThatEtcdCannotUseIsAnError(t *testing.T) {
	made := t.TempDir()
	c := embedtest.Start(t, embedtest.WithDir(made))
	for range 50 { // raft may panic while a member with 100 entries starts, if it compacts them before it has advanced
		put(t, c.Client(t), "k", strings.Repeat("v", 2000))
	}
	closesSoon(t, c)
	database, log := "m0/member/snap/db", "m0/member/wal/0000000000000000-0000000000000000.wal"
	replaced := func(path string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, path)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, change(before), 0o600))
		}
	}
	fileInstead := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, path)
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
	}
	directoryInstead := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, path)
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Mkdir(path, 0o700))
		}
	}
	garbage := func(before []byte) []byte { return bytes.Repeat([]byte("garbage "), len(before)/8) }
	half := func(before []byte) []byte { return before[:len(before)/2] }
	for name, damage := range map[string]func(*testing.T, string){
		"database is garbage":   replaced(database, garbage),
		"database is cut short": replaced(database, half),
		"database has garbage pages": replaced(database, func(before []byte) []byte {
			return append(before[:8192:8192], garbage(before[8192:])...)
		}),
		"database is a directory": directoryInstead(database),
		"log is garbage":          replaced(log, garbage),
		"log has a wrong byte": replaced(log, func(before []byte) []byte {
			before[200]++
			return before
		}),
		"log is cut short": replaced(log, func(before []byte) []byte {
			return half(bytes.TrimRight(before, "\x00"))
		}),
		"log is missing": func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "m0/member/wal")))
		},
		"log is empty":               replaced(log, func([]byte) []byte { return nil }),
		"log's directory is a file":  fileInstead("m0/member/wal"),
		"snapshots' place is a file": fileInstead("m0/member/snap"),
		"member's directory a file":  fileInstead("m0"),
		"addresses are garbage":      replaced("peers", garbage),
		"addresses are a directory":  directoryInstead("peers"),
		"the lock is a directory":    directoryInstead("lock"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(made)))
			require.NoError(t, opening(t, embedtest.WithDir(dir))) // undamaged
			damage(t, dir)
			for range 2 {
				require.Error(t, opening(t, embedtest.WithDir(dir)))
			}
		})
	}
	require.NoError(t, os.RemoveAll(made))
	require.NoError(t, os.WriteFile(made, nil, 0o600))
	require.Error(t, opening(t, embedtest.WithDir(made)))
}

func TestAMemberWithDamagedDataDoesNotRestart(t *testing.T) {
	dir := t.TempDir()
	c := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithDir(dir))
	put(t, c.Client(t), "k", "v")
	damaged := c.Members()[0]
	damaged.Kill()
	require.NoError(t, os.Truncate(filepath.Join(dir, damaged.Name(), "member/snap/db"), 8192))
	require.ErrorContains(t, damaged.Restart(), "database")
	_, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	require.NoError(t, damaged.Remove(within(t, patience)))
	added, err := c.AddMember(within(t, patience))
	require.NoError(t, err)
	require.Equal(t, "v", get(t, added.Client(t), "k"))
}
