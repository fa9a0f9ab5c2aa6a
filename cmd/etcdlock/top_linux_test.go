package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// terminal is a real one, that tmux shows on no screen.
type terminal struct {
	t      *testing.T
	socket string
}

// newTerminal runs a shell line in it.
func newTerminal(t *testing.T, line string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("not tested on a real terminal: there is no tmux here")
	}
	term := &terminal{t, filepath.Join(t.TempDir(), "tmux")}
	term.tmux("-f", os.DevNull, "new-session", "-d", "-x", "110", "-y", "14", line)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	return term
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	require.NoError(x.t, err, "%v: %s", args, out)
	return string(out)
}

func (x *terminal) press(keys ...string) {
	x.t.Helper()
	x.tmux(append([]string{"send-keys"}, keys...)...)
}

func (x *terminal) screen() string {
	x.t.Helper()
	return x.tmux("capture-pane", "-p")
}

func (x *terminal) shows(text string) {
	x.t.Helper()
	last := ""
	defer func() {
		if x.t.Failed() {
			x.t.Log(last)
		}
	}()
	eventually(x.t, "a screen with "+text, func() bool {
		last = x.screen()
		return strings.Contains(last, text)
	})
}

func TestTopOnARealTerminal(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	x := newTerminal(t, "TERM=xterm-256color "+binary+" --endpoints "+n.address+" --namespace "+name(t)+` top; echo "code $?"; read x`)
	x.shows("0 locks, 0 waiters")
	first := start(t, "run", "--namespace", name(t), "orders")
	first.says("orders")
	x.shows("orders  mutex")
	second := start(t, "run", "--namespace", name(t), "orders")
	x.shows("1 locks, 1 waiters")

	x.press("Enter")
	x.shows("waits  exclusive")
	x.press("r", "y")
	x.shows("really release")
	x.press("R")
	second.says("orders")
	require.Equal(t, exitLost, first.code())
	x.shows("1 holders, 0 waiters")
	x.press("Escape")

	x.tmux("resize-window", "-x", "30", "-y", "5")
	x.shows("too small")
	x.tmux("resize-window", "-x", "110", "-y", "14")
	x.shows("orders  mutex")

	n.black.Store(true)
	x.shows("etcd has not answered for")
	x.shows("orders  mutex")
	n.black.Store(false)
	eventually(t, "an answer", func() bool { return !strings.Contains(x.screen(), "has not answered") })

	x.press("q")
	x.shows("code 0")
	require.NotContains(t, x.screen(), "orders", "the screen is as it was before")
}

func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	r := start(t, "top")
	require.Equal(t, exitMistake, r.code())
	require.Contains(t, r.errors.String(), "needs a terminal; see etcdlock ls")
	terminal, _ := onTerminal(t, `$ETCDLOCK top | cat; $ETCDLOCK top </dev/null; echo "code $?"`)
	terminal.says("code 64")
}
