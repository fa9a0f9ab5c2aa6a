// Package stagetest runs examples in tests.
package stagetest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/examples/internal/stage"
)

// asProgram in the environment makes the test binary the program itself, with all the
// processes that it starts. So a run with -race looks at the program, too.
const asProgram = "ETCDLOCK_EXAMPLE_TEST_AS_PROGRAM"

// patience bounds what must happen soon; no test depends on how soon.
const patience = 2 * time.Minute

// Main is what an example's TestMain calls. Options are for goroutines of others that do not end.
func Main(m *testing.M, p stage.Program, opts ...goleak.Option) {
	if os.Getenv(asProgram) != "" {
		p.Main()
	}
	goleak.VerifyTestMain(m, opts...)
}

// Play runs the example as a process of its own, requires that it exits with 0 and has said nothing
// on its standard error, and returns what it has printed.
func Play(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	// The race detector would keep every process that ends waiting for a second.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 10 * time.Second // for what it may have left behind
	err = cmd.Run()
	t.Log("\n" + out.String())
	require.NoError(t, err, "%s", errOut.String())
	require.Empty(t, errOut.String())
	return out.String()
}
