package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/testchild"
)

const (
	// patience bounds what must happen at some time. Nothing is measured by it.
	patience = 30 * time.Second

	// pause is between looks for what gives no signal.
	pause = 5 * time.Millisecond
)

var (
	binary string             // of the tool
	shared *embedtest.Cluster // of tests that do not harm it
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// A process inherits which signals are ignored, as under nohup and behind & in a script, unless its parent catches them.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // nothing receives from it: the signal is ignored here, too
		}
	}
	dir, err := os.MkdirTemp("", "etcdlock")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "etcdlock")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	if shared, err = embedtest.Open(); err != nil {
		panic(err)
	}
	defer func() { _ = shared.Close() }()
	return m.Run()
}

// tool is a run of the binary.
type tool struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    testchild.Output
	errors testchild.Output
	ended  chan struct{}
}

// prepare returns a run that has not been started, connected to endpoints.
func prepare(t *testing.T, endpoints []string, args ...string) *tool {
	t.Helper()
	r := &tool{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+strings.Join(endpoints, ","), "ETCDLOCK="+binary)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errors
	r.cmd.WaitDelay = time.Second // processes that it has left behind have the same testchild.Output
	return r
}

func (r *tool) start() *tool {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Start())
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		_ = r.cmd.Process.Kill()
		<-r.ended
		if r.t.Failed() {
			r.t.Logf("%v\nstdout: %s\nstderr: %s", r.cmd.Args[1:], r.out.String(), r.errors.String())
		}
	})
	return r
}

// start runs the tool with the shared cluster.
func start(t *testing.T, args ...string) *tool {
	t.Helper()
	return prepare(t, shared.Endpoints(), args...).start()
}

// code waits for the end.
func (r *tool) code() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.FailNow(r.t, "still running", "%v\nstdout: %s\nstderr: %s", r.cmd.Args, r.out.String(), r.errors.String())
	}
	return r.cmd.ProcessState.ExitCode()
}

func (r *tool) signal(sig os.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(sig))
}

// says waits until text is on standard output.
func (r *tool) says(text string) {
	r.t.Helper()
	eventually(r.t, "output of "+text, func() bool { return strings.Contains(r.out.String(), text) })
}

// complains waits until text is on standard error.
func (r *tool) complains(text string) {
	r.t.Helper()
	eventually(r.t, "complaint: "+text, func() bool { return strings.Contains(r.errors.String(), text) })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, pause, what)
}

// name returns one that no other test uses.
func name(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", "-") }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// keys returns what is in the queue of a name.
func keys(t *testing.T, name string) []string {
	t.Helper()
	answer, err := shared.Client(t).Get(within(t), "etcdlock/"+name+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	var all []string
	for _, kv := range answer.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// inLine waits until so many hold the lock or wait for it.
func inLine(t *testing.T, name string, n int) {
	t.Helper()
	client := shared.Client(t)
	eventually(t, fmt.Sprintf("%d in line", n), func() bool {
		answer, err := client.Get(within(t), "etcdlock/"+name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && answer.Count == int64(n)
	})
}

// holder starts a run that holds the lock until it is told to end.
func holder(t *testing.T, name string) *tool {
	t.Helper()
	h := start(t, "run", name)
	h.says("etcdlock/" + name + "/")
	return h
}

// remove takes the lock away from its holder.
func remove(t *testing.T, name string) {
	t.Helper()
	_, err := shared.Client(t).Delete(within(t), "etcdlock/"+name+"/", clientv3.WithPrefix())
	require.NoError(t, err)
}
