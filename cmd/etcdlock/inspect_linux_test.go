package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/status"
)

// inspected returns what inspect prints as JSON.
func inspected(t *testing.T, name string) (q status.Queue) {
	t.Helper()
	r := start(t, "inspect", "-o", "json", name)
	require.Zero(t, r.code())
	require.NoError(t, json.Unmarshal([]byte(r.out.String()), &q))
	return q
}

func TestInspectShowsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	h := start(t, "run", "--label", "first", name(t))
	h.says("etcdlock/")
	start(t, "run", name(t), "true")
	inLine(t, name(t), 2)
	q := inspected(t, name(t))
	require.Len(t, q.Holders, 1)
	require.Len(t, q.Waiters, 1)
	require.Equal(t, h.cmd.Process.Pid, q.Holders[0].PID)
	require.Equal(t, "first", q.Holders[0].Label)
	require.Positive(t, q.Holders[0].TTL)

	names := start(t, "inspect", "-o", "names", name(t))
	require.Zero(t, names.code())
	require.Equal(t, q.Holders[0].Key+"\n"+q.Waiters[0].Key+"\n", names.out.String())
	table := start(t, "inspect", "-w", "simple", name(t))
	require.Zero(t, table.code())
	require.Equal(t, 3, strings.Count(table.out.String(), "\n"))

	require.Zero(t, start(t, "inspect", "-q", name(t)).code())
	require.Equal(t, 1, start(t, "inspect", "-q", name(t)+"-free").code())
	require.Equal(t, 64, start(t, "inspect", "-o", "xml", name(t)).code())
}

func TestReleaseTakesTheLockFromItsHolder(t *testing.T) {
	t.Parallel()
	first := holder(t, name(t))
	second := start(t, "run", name(t))
	inLine(t, name(t), 2)
	silent := start(t, "release", name(t))
	require.Equal(t, 64, silent.code(), "there is no terminal to ask on")
	inLine(t, name(t), 2)

	released := start(t, "release", "-y", name(t))
	require.Zero(t, released.code())
	require.Contains(t, released.errors.String(), "is being renewed")
	second.says("etcdlock/")
	require.Equal(t, 124, first.code())

	second.signal(syscall.SIGTERM)
	require.Zero(t, second.code())
	require.Equal(t, 1, start(t, "release", "-y", name(t)).code(), "nobody holds it")
}

func TestReleaseFindsThePlaceByTokenOrHolder(t *testing.T) {
	t.Parallel()
	for range 2 {
		start(t, "run", "-s", name(t)).says("etcdlock/")
	}
	require.Equal(t, 64, start(t, "release", "-y", name(t)).code(), "two hold it")
	require.Equal(t, 64, start(t, "release", "-y", "--token", "1", "--holder", "x", name(t)).code())
	require.Equal(t, 1, start(t, "release", "-y", "--token", "1", name(t)).code())
	q := inspected(t, name(t))
	require.Zero(t, start(t, "release", "-y", "--token", strconv.FormatInt(q.Holders[1].Token, 10), name(t)).code())
	left := q.Holders[0]
	require.Equal(t, []status.Place{left}, withoutTTL(inspected(t, name(t)).Holders, left.TTL))
	require.Zero(t, start(t, "release", "-y", "--holder", left.Host+":"+strconv.Itoa(left.PID), name(t)).code())
	require.Empty(t, keys(t, name(t)))
}

func withoutTTL(places []status.Place, ttl int64) []status.Place {
	for i := range places {
		places[i].TTL = ttl
	}
	return places
}

func TestReleaseAsksOnTheTerminal(t *testing.T) {
	t.Parallel()
	holder(t, name(t))
	no, keyboard := onTerminal(t, "$ETCDLOCK release "+name(t)+`; echo "code $?"`)
	no.says("[y/N]")
	_, err := keyboard.WriteString("\n")
	require.NoError(t, err)
	no.says("code 125")
	yes, keyboard := onTerminal(t, "$ETCDLOCK release "+name(t)+`; echo "code $?"`)
	yes.says("[y/N]")
	_, err = keyboard.WriteString("yes\n")
	require.NoError(t, err)
	yes.says("code 0")
	require.Empty(t, keys(t, name(t)))
}

func TestPasswordIsAskedForOnTheTerminal(t *testing.T) {
	t.Parallel()
	r, keyboard := onTerminal(t, "$ETCDLOCK --user u inspect "+name(t)+`; echo "code $?"`)
	r.says("Password: ")
	eventually(t, "no echo", func() bool { return !echoes(t, keyboard) })
	_, err := keyboard.WriteString("secret\n")
	require.NoError(t, err)
	r.says("code ")
	require.NotContains(t, r.out.String(), "secret")
}

func TestVersionManPagesAndCompletion(t *testing.T) {
	t.Parallel()
	v := start(t, "version")
	require.Zero(t, v.code())
	require.Regexp(t, `^etcdlock .*go1.*\n$`, v.out.String())

	dir := t.TempDir()
	require.Zero(t, start(t, "man", dir).code())
	page, err := os.ReadFile(filepath.Join(dir, "etcdlock-run.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), `ETCDLOCK_HELD`)

	script := start(t, "completion", "bash")
	require.Zero(t, script.code())
	file := filepath.Join(dir, "completion.bash")
	require.NoError(t, os.WriteFile(file, []byte(script.out.String()), 0o600))
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	require.NoError(t, exec.Command(bash, "-n", file).Run())
	words := start(t, "__complete", "ins")
	require.Zero(t, words.code())
	require.Contains(t, words.out.String(), "inspect")
	formats := start(t, "__complete", "inspect", "-o", "")
	require.Contains(t, (func() string { formats.code(); return formats.out.String() })(), "wide")
}
