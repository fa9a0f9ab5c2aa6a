package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/embedtest"
)

// asProgram in the environment makes the test binary the program itself, the workers
// included, since they inherit it. So a run with -race looks at the program, too.
const asProgram = "QUICKSTART_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what must happen soon; no test depends on how soon.
const patience = time.Minute

// program returns the program, ready to start. All its processes share its standard
// error, which is a pipe here: Wait returns when the last of them has gone.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.CommandContext(ctx, self, append(args, "-timeout", patience.String())...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	return cmd, stderr
}

// small keeps a run short; most of its time is the TTL.
var small = []string{"-workers", "3", "-rounds", "6", "-ttl", "1s"}

// long is for runs that do not come to their end.
var long = []string{"-workers", "3", "-rounds", "100000", "-ttl", "2s"}

func requireGoodRun(t *testing.T, args ...string) {
	t.Helper()
	cmd, stderr := program(t, args...)
	out, err := cmd.Output()
	text := string(out)
	require.NoError(t, err, "%s%s", text, stderr)
	require.Empty(t, stderr.String())
	require.Equal(t, len(verify(evidence{})), strings.Count(text, "\nPASS "), text)
	require.Equal(t, 1, strings.Count(text, "  KILL "), text)
	require.Equal(t, 1, strings.Count(text, "  TAKE-OVER "), text)
	require.Contains(t, text, "counter 6 = writes 6 = log entries 6")
	require.Contains(t, text, "\nall promises kept")
}

func TestCountsThroughAKill(t *testing.T) {
	t.Parallel()
	requireGoodRun(t, small...)
}

func TestLeavesNothingInAnExistingCluster(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	requireGoodRun(t, append(small, "-endpoints", strings.Join(cluster.Endpoints(), ","))...)
	require.Empty(t, everything(t, cluster))
}

func TestInterruptStopsAllProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process can be sent an interrupt")
	}
	cluster := embedtest.Start(t)
	cmd, _, stderr := startCounting(t, cluster)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), stderr)
	require.Contains(t, stderr.String(), "interrupt")
	require.Empty(t, everything(t, cluster))
}

func TestStopsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("this takes pipes as they are on Unix")
	}
	cluster := embedtest.Start(t)
	cmd, out, stderr := startCounting(t, cluster)
	require.NoError(t, out.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), stderr)
	require.Contains(t, stderr.String(), "broken pipe")
	require.Empty(t, everything(t, cluster))
}

func TestWorkersDoNotOutliveTheirParent(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	cmd, _, stderr := startCounting(t, cluster)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Empty(t, stderr.String())
	for _, kv := range everything(t, cluster) {
		require.Zero(t, kv.Lease, "%s should have been released", kv.Key)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-workers", "1"}, {"-rounds", "1"}, {"-ttl", "0s"}, {"-nonsense"}, {"extra"}} {
		var out, errOut bytes.Buffer
		require.Equal(t, 2, parentMain(args, &out, &errOut), args)
		require.Contains(t, errOut.String(), strings.TrimLeft(args[0], "-"))
		require.Empty(t, out.String())
	}
	var out, errOut bytes.Buffer
	require.Equal(t, 0, parentMain([]string{"-h"}, &out, &errOut))
	require.Contains(t, errOut.String(), "-endpoints")
}

// startCounting starts a run and returns when the first increment has been shown. What
// it prints afterwards fits into the pipe; nobody needs to read it.
func startCounting(t *testing.T, cluster *embedtest.Cluster) (cmd *exec.Cmd, out io.ReadCloser, stderr *bytes.Buffer) {
	t.Helper()
	cmd, stderr = program(t, append(long, "-endpoints", strings.Join(cluster.Endpoints(), ","))...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasSuffix(line, "0 -> 1\n") {
			return cmd, out, stderr
		}
	}
}

func everything(t *testing.T, cluster *embedtest.Cluster) []*mvccpb.KeyValue {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := cluster.Client(t).Get(ctx, "", clientv3.WithPrefix())
	require.NoError(t, err)
	return answer.Kvs
}
