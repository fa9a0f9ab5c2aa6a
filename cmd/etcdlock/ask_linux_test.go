package main

import (
	"context"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const yielding = "trap 'echo yielded; exit 6' TERM; echo ready; while :; do sleep 0.02; done"

func TestYieldEndsTheCommandWhenSomebodyWaits(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--yield", name(t), "sh", "-c", yielding)
	r.says("ready")
	next := start(t, "run", name(t), "true")
	require.Zero(t, next.code())
	require.Equal(t, 6, r.code(), "the command's own, since nothing was lost")
	require.Contains(t, r.errors.String(), `somebody waits for the lock "`+name(t)+`", ending sh`)

	idle := start(t, "run", "--yield", name(t))
	idle.says("etcdlock/")
	require.Zero(t, start(t, "run", name(t), "true").code())
	require.Zero(t, idle.code())
}

func TestYieldKillsACommandThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--yield", "--stop-timeout", "0.1", name(t), "sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.02; done`)
	r.says("ready")
	require.Zero(t, start(t, "run", name(t), "true").code())
	require.Equal(t, 137, r.code())
}

func TestYieldIsForExclusiveLocks(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"-s", "--limit=2", "--also=x"} {
		r := start(t, "run", "--yield", flags, name(t), "true")
		require.Equal(t, 64, r.code())
		require.Contains(t, complaint(t, r), "--yield cannot be combined")
	}
}

func TestReleaseAskWaitsUntilTheHolderYields(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--yield", name(t), "sh", "-c", yielding)
	r.says("ready")
	asker := start(t, "release", "--ask", name(t))
	require.Zero(t, asker.code())
	require.Equal(t, 6, r.code())
	require.Empty(t, keys(t, name(t)))
}

func TestReleaseAskLeavesTheLockToAHolderThatDoesNotLook(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t))
	asker := start(t, "release", "--ask", name(t))
	inLine(t, name(t), 2)
	asker.signal(syscall.SIGINT)
	require.Equal(t, 130, asker.code())
	inLine(t, name(t), 1)
	h.signal(syscall.SIGTERM)
	require.Zero(t, h.code())
}

func TestReleaseAskRemovesTheHolderAfterTheGrace(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t))
	waiter := start(t, "run", name(t))
	inLine(t, name(t), 2)
	asker := start(t, "release", "--ask", "--grace", "0.3", "--yes", name(t))
	require.Zero(t, asker.code())
	require.Contains(t, asker.errors.String(), "was not given up within 300ms, removing its holder")
	require.Equal(t, 124, h.code())
	waiter.says("etcdlock/")
	require.Len(t, keys(t, name(t)), 1, "the asker has not stood in line: somebody did already")
	waiter.signal(syscall.SIGTERM)
	require.Zero(t, waiter.code())
}

// The upgrade may wait before the asker comes, or after. Its own place in line asks nobody for anything.
func TestReleaseAskWaitsForAHolderThatIsUpgraded(t *testing.T) {
	t.Parallel()
	for _, upgradesFirst := range []bool{true, false} {
		sessions := session.Keep(shared.Client(t))
		t.Cleanup(func() { _ = sessions.Close(context.WithoutCancel(t.Context())) })
		lock := etcdlock.NewRWMutex(sessions, name(t))
		h, err := lock.Lock(within(t))
		require.NoError(t, err)
		require.NoError(t, h.Downgrade(within(t)))
		reader, err := lock.RLock(within(t))
		require.NoError(t, err)

		upgraded := make(chan error, 1)
		ctx := within(t)
		upgrade := func() { go func() { upgraded <- h.Upgrade(ctx) }() }
		if upgradesFirst {
			upgrade()
			inLine(t, name(t), 3)
		}
		asker := start(t, "release", "--ask", "--token", strconv.FormatInt(int64(h.Token()), 10), name(t))
		if !upgradesFirst {
			inLine(t, name(t), 3)
			upgrade()
		}
		inLine(t, name(t), 4)
		require.NoError(t, reader.Unlock(within(t)))
		require.NoError(t, <-upgraded)
		require.NoError(t, h.Wanted(within(t)), "the asker is still in line")
		require.NoError(t, h.Unlock(within(t)))
		require.Zero(t, asker.code())
		require.Empty(t, keys(t, name(t)))
	}
}

func TestReleaseAskIsForTheHolderOfAnExclusiveLock(t *testing.T) {
	t.Parallel()
	start(t, "run", "-s", name(t)).says("etcdlock/")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--ask", name(t)}, 64, "exclusive"},
		{[]string{"--grace", "1", name(t)}, 64, "--grace needs --ask"},
		{[]string{"--ask", "--grace", "0", name(t)}, 64, "must be positive"},
		{[]string{"--ask", name(t) + "-free"}, 1, "nobody to remove"},
	} {
		r := start(t, append([]string{"release"}, c.args...)...)
		require.Equal(t, c.code, r.code(), c.args)
		require.Contains(t, complaint(t, r), c.says)
	}
}
