package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/internal/testchild"
)

const (
	// patience bounds what must happen at some time. Nothing is measured by it.
	patience = 30 * time.Second

	// pause is between looks for what gives no signal.
	pause = 10 * time.Millisecond

	root = "../.."
)

// tool is the binary of the Dockerfile.
var tool = sync.OnceValues(func() (string, error) { return buildImage("build-tool", "etcdlock") })

var scratch string // a directory for all tests

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "check"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	return m.Run()
}

// process is a command that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   testchild.Output // and errors
	ended chan struct{}
}

func run(t *testing.T, env []string, argv ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Second
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%v\n%s", argv, p.out.String())
		}
	})
	return p
}

// code waits for the end.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(p.t, "still running", "%v\n%s", p.cmd.Args, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate sends SIGTERM to the process alone.
func (p *process) terminate() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, pause, what)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func endpoints(all []string) string { return "ETCDCTL_ENDPOINTS=" + strings.Join(all, ",") }

// script writes an executable for /bin/sh.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	writeExecutable(t, path, "#!/bin/sh\n"+text+"\n")
	return path
}

// writeExecutable writes a file that is going to be executed. The kernel refuses that while a process that another test
// is about to start has inherited the open file, so nothing is started meanwhile.
func writeExecutable(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // it has to be executable
}

// theTool returns the path of the tool's binary.
func theTool(t *testing.T) string {
	t.Helper()
	path, err := tool()
	require.NoError(t, err)
	return path
}

// ownAddress returns an address of this machine that nothing else uses. A port that was free is not reserved, but
// all of 127.0.0.0/8 is this machine's.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:4040", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
