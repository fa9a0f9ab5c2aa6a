package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/status"
)

// lsJSON returns what ls prints as JSON.
func lsJSON(t *testing.T, args ...string) (all []status.Lock) {
	t.Helper()
	r := start(t, append([]string{"ls", "-o", "json"}, args...)...)
	require.Zero(t, r.code())
	require.NoError(t, json.Unmarshal([]byte(r.out.String()), &all))
	return all
}

func TestLsListsLocksThatMatch(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t))
	start(t, "run", name(t), "true")
	start(t, "run", "--limit", "3", name(t)+"/permits").says("etcdlock/")
	start(t, "elect", "--id", "me", name(t)+"/leader").says("etcdlock/")
	inLine(t, name(t), 2)

	all := lsJSON(t, name(t)+"*")
	require.Len(t, all, 3)
	require.Equal(t, []string{status.Election, status.Semaphore, status.Mutex}, []string{all[0].Kind, all[1].Kind, all[2].Kind})
	require.Equal(t, "me", all[0].First.Value)
	require.Equal(t, []int{1, 1}, []int{all[2].Holders, all[2].Waiters})
	require.Equal(t, h.cmd.Process.Pid, all[2].First.PID)
	require.False(t, all[2].Waiting.IsZero())
	require.Equal(t, all[2:], lsJSON(t, name(t)))

	names := start(t, "ls", "-o", "names", name(t)+"/*")
	require.Zero(t, names.code())
	require.Equal(t, name(t)+"/leader\n"+name(t)+"/permits\n", names.out.String())
	table := start(t, "list", name(t)+"*")
	require.Zero(t, table.code())
	require.Contains(t, table.out.String(), fmt.Sprintf(":%d etcdlock", h.cmd.Process.Pid))
	require.NotContains(t, table.out.String(), "\x1b")

	none := start(t, "ls", name(t)+"-none")
	require.Zero(t, none.code())
	require.Empty(t, none.out.String())
	require.Contains(t, none.errors.String(), `namespace "etcdlock"`)
	require.Equal(t, "[]\n", (func() string { r := start(t, "ls", "-o", "json", "no-such-lock"); r.code(); return r.out.String() })())
	require.Equal(t, exitMistake, start(t, "ls", "[").code())
	require.Equal(t, exitMistake, start(t, "ls", "a", "b").code())
}

func TestLsListsQueuesAtPrefixes(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	_, err := client.Put(within(t), name(t)+"/a/1f", "etcdctl's")
	require.NoError(t, err)
	start(t, "run", "--prefix", name(t)+"/b").says(name(t))
	all := lsJSON(t, "--prefix", name(t)+"/*")
	require.Len(t, all, 2)
	require.Equal(t, name(t)+"/a", all[0].Name)
	require.Equal(t, "etcdctl's", all[0].First.Value)
	require.Equal(t, name(t)+"/b", all[1].Name)
}

func TestLsUsesColoursOnATerminalOnly(t *testing.T) {
	t.Parallel()
	holder(t, name(t))
	r, _ := onTerminal(t, `TERM=xterm NO_COLOR= $ETCDLOCK ls `+name(t))
	r.says(name(t))
	require.Zero(t, r.code())
	require.Contains(t, r.out.String(), "\x1b[1mNAME")
	r, _ = onTerminal(t, `TERM=xterm NO_COLOR=1 $ETCDLOCK ls `+name(t))
	r.says(name(t))
	require.Zero(t, r.code())
	require.NotContains(t, r.out.String(), "\x1b")
}

func TestLsSaysThatEtcdIsNotThere(t *testing.T) {
	t.Parallel()
	r := prepare(t, []string{"127.0.0.1:1"}, "ls", "--command-timeout", "200ms").start()
	require.Equal(t, exitUnavailable, r.code())
	require.Contains(t, r.errors.String(), "is etcd running")
	require.Equal(t, 1, strings.Count(r.errors.String(), "\n"))
}

func TestNamesOfLocksAreCompleted(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"/one", "/two"} {
		start(t, "run", name(t)+lock).says("etcdlock/")
	}
	complete := func(args ...string) string {
		r := start(t, append([]string{"__complete"}, args...)...)
		require.Zero(t, r.code())
		return r.out.String()
	}
	for _, command := range []string{"run", "elect", "inspect", "release", "ls"} {
		require.Equal(t, name(t)+"/one\n"+name(t)+"/two\n:4\n", complete(command, name(t)+"/"), command)
	}
	require.Equal(t, ":0\n", complete("run", name(t)+"/one", ""), "then comes a command")
	require.Equal(t, ":4\n", complete("inspect", name(t)+"/one", ""))
	require.Equal(t, ":4\n", complete("--user", "somebody", "inspect", ""), "nobody is asked for a password")

	require.Equal(t, name(t)+"/one\n"+name(t)+"/two\n:4\n", complete("run", "--also", name(t)+"/"))
	inside := start(t, "run", name(t)+"/three", binary, "__complete", "held", "--lock", "")
	require.Zero(t, inside.code())
	require.Equal(t, name(t)+"/three\n:4\n", inside.out.String())

	away := prepare(t, []string{"127.0.0.1:1"}, "__complete", "inspect", "").start()
	require.Zero(t, away.code())
	require.Equal(t, ":4\n", away.out.String())
}

// memory returns how much of it a process has had at most. What wait returns counts that of this process, too.
func memory(pid int) (most int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &most); err == nil {
			return most << 10
		}
	}
	return 0
}

// How long a list takes, from the start of the process to its end, and the most memory that it had.
func BenchmarkLs(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("locks=%d", n), func(b *testing.B) {
			cluster := embedtest.Start(b)
			client := cluster.Client(b)
			lease, err := client.Grant(b.Context(), 3600)
			require.NoError(b, err)
			for i := 0; i < n; i += 100 {
				var puts []clientv3.Op
				for j := i; j < i+100; j++ {
					value := fmt.Sprintf(`{"host":"machine-%d","pid":%d,"program":"worker","since":"2026-11-29T12:00:00.000Z"}`, j%50, j)
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("etcdlock/job-%06d/x%x-0", j, int64(lease.ID)), value, clientv3.WithLease(lease.ID)))
				}
				_, err := client.Txn(b.Context()).Then(puts...).Commit()
				require.NoError(b, err)
			}
			for _, format := range []string{asTable, asJSON} {
				b.Run(format, func(b *testing.B) {
					var most int64
					for b.Loop() {
						cmd := exec.Command(binary, "ls", "-o", format)
						cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+strings.Join(cluster.Endpoints(), ","))
						require.NoError(b, cmd.Start())
						ended := make(chan error, 1)
						go func() { ended <- cmd.Wait() }()
						for running := true; running; {
							most = max(most, memory(cmd.Process.Pid))
							select {
							case err := <-ended:
								require.NoError(b, err)
								running = false
							case <-time.After(time.Millisecond):
							}
						}
					}
					b.ReportMetric(float64(most)/(1<<20), "MiB")
				})
			}
		})
	}
}

func TestTheToolIsComplete(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(binary)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(40_000_000))
	dir := t.TempDir()
	require.Zero(t, start(t, "man", dir).code())
	for _, page := range []string{"etcdlock-ls.1", "etcdlock-top.1"} {
		require.FileExists(t, filepath.Join(dir, page))
	}
	commands := start(t, "__complete", "")
	require.Zero(t, commands.code())
	for _, command := range []string{"ls\t", "top\t"} {
		require.Contains(t, commands.out.String(), command)
	}
}
