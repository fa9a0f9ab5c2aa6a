package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bench runs the program in a directory of its own for temporary files, and returns the
// report. Afterwards nothing may be left there.
func bench(t *testing.T, args ...string) string {
	t.Helper()
	out := t.TempDir()
	tmp, err := os.MkdirTemp("", "b") // short, for the sake of unix sockets
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(tmp) }()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, run(ctx, append(args, "-out", out), t.Output()))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "servers' directories")
	text, err := os.ReadFile(filepath.Join(out, "report.md"))
	require.NoError(t, err)
	return string(text)
}

// tiny is as little as still goes through everything.
var tiny = []string{
	"-fsync", "off", "-warm", "100ms", "-rounds", "1", "-slice", "20ms", "-ttl", "2s", "-timeout", "1m",
	"-contenders", "2,3", "-names", "4", "-herd", "5,10",
}

// With whatever is installed.
func TestEndToEnd(t *testing.T) {
	text := bench(t, append(tiny, "-run", "uncontended|hot|local|refused|names|herd|read|crash")...)
	for _, want := range []string{
		"## uncontended", "## hot lock", "## local", "## refused try", "## many names", "## herd", "## read-mostly", "## crash",
		"| etcdlock | etcd, 1 member, no fsync |", "| concurrency | etcd, 1 member, no fsync |", "| recipes RWMutex |", "| client-go | in memory |",
		"| 10 | etcdlock |", "(hot-lock-etcd-1-member-no-fsync.svg)",
	} {
		require.Contains(t, text, want)
	}
}

// ZooKeeper's locks, too, have to hold when its clients are on different servers.
func TestThreeMembers(t *testing.T) {
	text := bench(t, append(tiny, "-members", "3", "-peers", "^etcdlock$|zookeeper", "-run", "hot|herd|crash")...)
	require.Contains(t, text, "| etcdlock | etcd, 3 members, no fsync |")
	if !strings.Contains(text, "Absent: zookeeper, 3 members, no fsync: ") {
		require.Contains(t, text, "| 10 | go-zookeeper | zookeeper, 3 members, no fsync |")
	}
}

func TestSlowWorkloads(t *testing.T) {
	text := bench(t, append(tiny, "-peers", "^etcdlock$|client-go|watcher", "-run", "clean release|memory")...)
	require.Contains(t, text, "## clean release")
	require.Contains(t, text, "| plain watcher |")
	require.Contains(t, text, "## memory")
}

func TestWhatIsNotInstalledIsReportedAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	text := bench(t, append(tiny, "-run", "uncontended")...)
	require.Contains(t, text, "Absent: redis, default: redis-server: not installed")
	require.Contains(t, text, "Absent: zookeeper, 1 member, no fsync: java: not installed")
	require.NotContains(t, text, "| redsync | redis")
	require.Contains(t, text, "| etcdlock | etcd, 1 member, no fsync |")
}
