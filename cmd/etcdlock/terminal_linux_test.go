package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal runs a shell line on a terminal of its own, as a session's leader, and returns the other end of it.
func onTerminal(t *testing.T, line string) (*tool, *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	raw, err := keyboard.SyscallConn() // with Fd, Close would wait for the end of a Read
	require.NoError(t, err)
	var n int
	var unlocked, named error
	require.NoError(t, raw.Control(func(fd uintptr) {
		unlocked = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		n, named = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	}))
	require.NoError(t, unlocked)
	require.NoError(t, named)
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	r := prepare(t, shared.Endpoints())
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", line}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = screen, screen, screen
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r.start()
	_ = screen.Close()
	go func() {

		_, _ = io.Copy(&r.out, keyboard) // ends with an error when nobody has the terminal any more
	}()
	t.Cleanup(func() {
		_ = keyboard.Close()
	})
	return r, keyboard
}

// echoes reports whether the terminal shows what is typed.
func echoes(t *testing.T, keyboard *os.File) (shown bool) {
	t.Helper()
	raw, err := keyboard.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		settings, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		shown = err != nil || settings.Lflag&unix.ECHO != 0
	}))
	return shown
}

func TestCommandReadsFromTheTerminalAndTheShellAfterIt(t *testing.T) {
	t.Parallel()
	r, keyboard := onTerminal(t, `$ETCDLOCK run `+name(t)+` sh -c 'echo ready; read x; echo "got $x"'; read y; echo "then $y"`)
	r.says("ready")
	_, err := keyboard.WriteString("one\n")
	require.NoError(t, err)
	r.says("got one")
	_, err = keyboard.WriteString("two\n")
	require.NoError(t, err)
	r.says("then two")
	require.Zero(t, r.code())
}

func TestInterruptFromTheTerminalReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	r, keyboard := onTerminal(t, `$ETCDLOCK run `+name(t)+` sh -c 'trap "echo interrupted; exit 9" INT; echo ready; while :; do sleep 0.02; done'; echo "code $?"`)
	r.says("ready")
	_, err := keyboard.WriteString("\x03")
	require.NoError(t, err)
	r.says("interrupted")
	r.says("code 9")
}

func TestCommandIsNotSuspendedFromTheTerminal(t *testing.T) {
	t.Parallel()
	r, keyboard := onTerminal(t, `$ETCDLOCK run `+name(t)+` sh -c 'echo ready; read x; echo "got $x"'; echo "code $?"`)
	r.says("ready")
	_, err := keyboard.WriteString("\x1a")
	require.NoError(t, err)
	r.says("not suspended")
	_, err = keyboard.WriteString("one\n")
	require.NoError(t, err)
	r.says("got one")
	r.says("code 0")
}

func TestTerminalThatIsClosedEndsTheCommand(t *testing.T) {
	t.Parallel()
	r, keyboard := onTerminal(t, `exec $ETCDLOCK run `+name(t)+` sh -c 'echo ready; while :; do sleep 0.02; done'`)
	r.says("ready")
	require.NoError(t, keyboard.Close())
	require.Equal(t, 128+int(syscall.SIGHUP), r.code())
	require.Empty(t, keys(t, name(t)))
}

func TestWaitOnATerminalSaysWhoIsAhead(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t))
	r, _ := onTerminal(t, "exec $ETCDLOCK run "+name(t)+" true")
	r.says(fmt.Sprintf(":%d etcdlock, in line for", h.cmd.Process.Pid))
	require.Contains(t, r.out.String(), "1 ahead")
	h.signal(syscall.SIGTERM)
	require.Zero(t, r.code())
}
