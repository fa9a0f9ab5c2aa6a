package metricscheck

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/internal/testchild"
)

const (
	// patience bounds what must happen at some time. Nothing is measured by it.
	patience = 2 * time.Minute

	// pause is between looks for what gives no signal.
	pause = 50 * time.Millisecond

	rulesFile = "../prometheus/rules.yaml"
)

// Scenarios wait for most of their time, so all of them run at once.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// need skips the test if a program is missing.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("not tested: there is no %s here (Debian: apt-get install prometheus)", program)
	}
}

// run starts a process that ends with the test.
func run(t *testing.T, argv ...string) *testchild.Output {
	t.Helper()
	out := &testchild.Output{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%v\n%s", argv, out.String())
		}
	})
	return out
}

// tool builds the command etcdlock.
func tool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcdlock")
	build := exec.Command("go", "build", "-C", "../../cmd/etcdlock", "-o", path, ".")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())
	return path
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
