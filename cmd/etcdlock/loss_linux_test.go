package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLossEndsTheCommand(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "trap 'echo cleaned up; exit 0' TERM\necho ready; while :; do sleep 0.02; done")
	r.says("ready")
	remove(t, name(t))
	require.Equal(t, 124, r.code())
	require.Contains(t, r.out.String(), "cleaned up")
	lines := regexp.MustCompile(`(?m)^etcdlock: lost "` + name(t) + `", ending sh -c .* echo ready; .* killing it in 5s: .*$`)
	require.Len(t, lines.FindAllString(r.errors.String(), -1), 1, "a line, though the command has two")
}

func TestLossIsToldInOneLineThoughProcessesAreLeft(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--ttl", "8", "--grace", "2", name(t), "sh", "-c", `trap "" TERM; sleep 1000 & trap - TERM; echo ready; wait`)
	r.says("ready")
	remove(t, name(t))
	require.Equal(t, 124, r.code())
	require.Contains(t, complaint(t, r), "lost")
}

func TestLossThatOnlyTheReleaseNoticesCounts(t *testing.T) {
	t.Parallel()
	// A hold watches its key when it is a second old.
	r := start(t, "run", name(t), binary, "release", "--yes", name(t))
	require.Equal(t, 124, r.code())
}

func TestLossIsOnlyToldIfTheUserWantsThat(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--on-lost", "warn", name(t), "sh", "-c", "echo ready; read x; exit 3")
	r.says("ready")
	require.Equal(t, 3, r.code())
	lost := start(t, "run", "--on-lost", "warn", name(t), "sh", "-c", "echo ready; while $ETCDLOCK held 2>/dev/null; do :; done; sleep 0.3; echo done")
	lost.says("ready")
	remove(t, name(t))
	require.Equal(t, 124, lost.code())
	require.Contains(t, lost.out.String(), "done")
}

// stubborn is a command with a child, both of which ignore SIGTERM and write the time to a file all the time.
func stubborn(file string) string {
	return `trap "" TERM; (while :; do date +%s%N >>` + file + `; sleep 0.02; done) & while :; do date +%s%N >>` + file + `; sleep 0.02; done`
}

// times returns the first and the last time in a file.
func times(t *testing.T, file string) (first, last int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			continue // cut off by a SIGKILL
		}
		if first == 0 {
			first = at
		}
		last = max(last, at)
	}
	return first, last
}

func TestBlackHoleKillsTheCommandBeforeTheNextOwnerStarts(t *testing.T) {
	t.Parallel()
	rounds := 4
	if text := os.Getenv("ETCDLOCK_TEST_BLACK_HOLES"); text != "" {
		rounds, _ = strconv.Atoi(text)
	}
	for i := range rounds {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			owner, next := filepath.Join(dir, "owner"), filepath.Join(dir, "next")
			n := newNetwork(t)
			r := prepare(t, []string{n.address}, "run", "--ttl", "4", "--grace", "1s", name(t), "sh", "-c", stubborn(owner)).start()
			eventually(t, "the first owner", func() bool { _, err := os.Stat(owner); return err == nil })
			waiting := start(t, "run", name(t), "sh", "-c", "date +%s%N >"+next)
			inLine(t, name(t), 2)
			n.black.Store(true)
			require.Zero(t, waiting.code())
			require.Equal(t, 124, r.code())
			_, ended := times(t, owner)
			begun, _ := times(t, next)
			require.Less(t, ended, begun)
			t.Logf("the next owner started %v after the last sign of the first", time.Duration(begun-ended))
			require.Contains(t, complaint(t, r), "lost")
		})
	}
}

func TestToolThatWasStoppedForLongKillsAtOnce(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--ttl", "4", "--grace", "1s", name(t), "sh", "-c", `
		trap "" TERM; echo $$; while $ETCDLOCK put data/`+name(t)+` first; do :; done 2>/dev/null; while :; do sleep 0.02; done`)
	pid := numbers(t, r, 1)[0]
	r.signal(syscall.SIGSTOP)
	inLine(t, name(t), 0)
	next := start(t, "run", name(t), binary, "put", "data/"+name(t), "second")
	require.Zero(t, next.code())
	require.True(t, alive(pid), "nobody is there to kill it")
	r.signal(syscall.SIGCONT)
	eventually(t, "the command's death", func() bool { return !alive(pid) })
	require.Equal(t, 124, r.code())
	require.Contains(t, complaint(t, r), "killing it in 0s", "the grace is over")
	answer, err := shared.Client(t).Get(within(t), "data/"+name(t))
	require.NoError(t, err)
	require.Equal(t, "second", string(answer.Kvs[0].Value))
}
