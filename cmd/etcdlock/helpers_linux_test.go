package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// stat returns a field of /proc/<pid>/stat, counted as in proc(5) from 1; empty if the process is not there.
func stat(pid, field int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	line := string(text)
	return strings.Fields(line[strings.LastIndexByte(line, ')')+1:])[field-3]
}

func state(pid int) string { return stat(pid, 3) }

// alive reports whether a process runs, or could.
func alive(pid int) bool { return state(pid) != "" && state(pid) != "Z" && state(pid) != "X" }

// numbers waits for so many lines on standard output, each a number.
func numbers(t *testing.T, r *tool, n int) []int {
	t.Helper()
	eventually(t, "numbers", func() bool { return strings.Count(r.out.String(), "\n") >= n })
	var all []int
	for line := range strings.Lines(r.out.String()) {
		i, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		all = append(all, i)
	}
	return all
}

// network is a way to the shared cluster that can swallow everything.
type network struct {
	address string
	black   atomic.Bool
	conns   sync.WaitGroup
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{}
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "etcd.sock"))
	require.NoError(t, err)
	n.address = "unix://" + listener.Addr().String()
	target := strings.TrimPrefix(strings.TrimPrefix(shared.Endpoints()[0], "unix:"), "//")
	n.conns.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			n.conns.Go(func() { n.copy(far, near) })
			n.conns.Go(func() { n.copy(near, far) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.conns.Wait()
	})
	return n
}

func (n *network) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		if n.black.Load() {
			continue
		}
		if _, err := io.Writer(to).Write(buffer[:size]); err != nil {
			return
		}
	}
}

// ownAddress returns an address of this machine that nothing else uses. A port that was free is not reserved, but
// all of 127.0.0.0/8 is this machine's.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:4040", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// writeExecutable writes a file that is going to be executed. The kernel refuses that while a process that another test
// is about to start has inherited the open file, so nothing is started meanwhile.
func writeExecutable(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // it has to be executable
}
