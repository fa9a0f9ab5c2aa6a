package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandHasAProcessGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "echo $$; sleep 1000 & echo $!; wait")
	pids := numbers(t, r, 2)
	require.Equal(t, strconv.Itoa(pids[0]), stat(pids[0], 5))
	require.Equal(t, strconv.Itoa(pids[0]), stat(pids[1], 5))
	r.signal(syscall.SIGTERM)
	require.Equal(t, 143, r.code())
	require.False(t, alive(pids[1]), "the whole group gets signals")
}

func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", `
		for s in HUP INT QUIT USR1 USR2 WINCH; do trap "echo got $s" $s; done
		trap 'echo got TERM; exit 7' TERM
		echo ready; while :; do sleep 0.02; done`)
	r.says("ready")
	for _, s := range []struct {
		sig  syscall.Signal
		text string
	}{
		{syscall.SIGHUP, "HUP"}, {syscall.SIGINT, "INT"}, {syscall.SIGQUIT, "QUIT"}, {syscall.SIGUSR1, "USR1"},
		{syscall.SIGUSR2, "USR2"}, {syscall.SIGWINCH, "WINCH"}, {syscall.SIGTERM, "TERM"},
	} {
		r.signal(s.sig)
		r.says("got " + s.text)
	}
	require.Equal(t, 7, r.code())
	require.Empty(t, keys(t, name(t)))
}

func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	r := prepare(t, shared.Endpoints())
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec $ETCDLOCK run ` + name(t) + ` sh -c 'kill -HUP $$; echo alive'`}
	r.start()
	require.Zero(t, r.code())
	require.Equal(t, "alive\n", r.out.String())
}

func TestSignalEndsTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	holder(t, name(t))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		r := start(t, "run", name(t), "echo", "started")
		inLine(t, name(t), 2)
		r.signal(syscall.SIGWINCH) // which ends nothing
		r.signal(sig)
		require.Equal(t, 128+int(sig), r.code())
		require.Empty(t, r.out.String())
		inLine(t, name(t), 1)
	}
}

func TestSignalEndsTheWaitForEtcd(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.black.Store(true)
	r := prepare(t, []string{n.address}, "run", "--command-timeout", "1h", name(t), "echo", "started").start()
	eventually(t, "a catcher of signals", func() bool { return caught(r.cmd.Process.Pid, syscall.SIGTERM) })
	r.signal(syscall.SIGTERM)
	require.Equal(t, 143, r.code())
}

// caught reports whether a process has a handler for sig and has asked etcd by now.
func caught(pid int, sig syscall.Signal) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), "SigIgn:")
	_, rest, _ = strings.Cut(rest, "SigCgt:")
	mask, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	// Go's runtime catches every signal at once. SIGTSTP is left alone until it is asked for.
	return err == nil && mask&(1<<(sig-1)) != 0 && mask&(1<<(syscall.SIGTSTP-1)) != 0
}

func TestCommandGoesOnIfNobodyReadsTheMessages(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	r := prepare(t, shared.Endpoints(), "run", name(t), "sh", "-c", "sleep 0.2 & exit 5")
	r.cmd.Stderr = writer
	r.start()
	require.NoError(t, writer.Close())
	require.Equal(t, 5, r.code())
}

func TestStopTimeoutKillsACommandThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--stop-timeout", "0.2", name(t), "sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.02; done`)
	r.says("ready")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 137, r.code())
}

func TestLockStaysUntilTheGroupHasEnded(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "sleep 1000 & echo $!; exit 5")
	pid := numbers(t, r, 1)[0]
	r.complains("has ended, but not its process " + strconv.Itoa(pid))
	require.Len(t, keys(t, name(t)), 1)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Equal(t, 5, r.code())
	require.Empty(t, keys(t, name(t)))
}

func TestSignalReachesWhatTheCommandHasLeftBehind(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "sleep 1000 & echo $!; exit 5")
	pid := numbers(t, r, 1)[0]
	r.complains("has ended, but not")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 5, r.code())
	require.False(t, alive(pid))
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "(setsid sh -c 'echo $$; exec sleep 0.1' &); while :; do sleep 0.02; done")
	orphan := numbers(t, r, 1)[0]
	eventually(t, "the end of the orphan", func() bool { return state(orphan) == "" })
	require.True(t, alive(r.cmd.Process.Pid))
}

func TestProcessOneReapsOrphans(t *testing.T) {
	t.Parallel()
	r := prepare(t, shared.Endpoints())
	pid := filepath.Join(t.TempDir(), "pid")
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", "exec unshare --pid --fork --mount-proc $ETCDLOCK run " + name(t) +
		` sh -c '(setsid sh -c "echo \$\$ >` + pid + `" &); until test -s ` + pid + ` && ! test -e /proc/$(cat ` + pid + `); do :; done; exit 6'`}
	r.start()
	code := r.code()
	if strings.Contains(r.errors.String(), "unshare") {
		t.Skip("no namespaces here: " + r.errors.String())
	}
	require.Equal(t, 6, code)
}

func TestCommandDiesWithTheTool(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "echo $$; while :; do sleep 0.02; done")
	pid := numbers(t, r, 1)[0]
	r.signal(syscall.SIGKILL)
	eventually(t, "the command's death", func() bool { return !alive(pid) })
}
