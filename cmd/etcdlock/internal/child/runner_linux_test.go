package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errTooLate = errors.New("too late")

func always() error { return nil }

func spec(line string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"sh", "-c", line}, Env: os.Environ()}
}

func TestNothingStartsAfterASignalThatAsksForTheEnd(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		var r Runner
		require.True(t, r.Forward(sig, errTooLate, 0), sig)
		_, err := r.Start(spec("exit 0"), always)
		require.Equal(t, errTooLate, err, sig)
	}
	var r Runner
	require.False(t, r.Forward(syscall.SIGWINCH, errTooLate, 0))
	c, err := r.Start(spec("trap 'exit 4' USR1; kill -USR1 $$; sleep 1"), always)
	require.NoError(t, err)
	require.False(t, r.Forward(syscall.SIGUSR2, errTooLate, 0) && c.Wait().Code == 0, "it is for the command now")
	c.Wait()
}

func TestNothingStartsAfterALoss(t *testing.T) {
	var r Runner
	_, err := r.Start(spec("exit 0"), func() error { return errTooLate })
	require.Equal(t, errTooLate, err)
}

func TestSignalThatComesWithTheStartIsNotMissed(t *testing.T) {
	const rounds = 50
	for range rounds {
		var r Runner
		var both sync.WaitGroup
		both.Go(func() { r.Forward(syscall.SIGTERM, errTooLate, 0) })
		c, err := r.Start(spec("exec sleep 1000"), always)
		if err != nil {
			require.Equal(t, errTooLate, err)
		} else {
			require.Equal(t, Status{Signal: syscall.SIGTERM}, c.Wait())
		}
		both.Wait()
	}
}

func TestCommandOutlivesTheThreadOfTheCaller(t *testing.T) {
	type begun struct {
		c      *Child
		err    error
		thread int
	}
	started := make(chan begun)
	ready := filepath.Join(t.TempDir(), "ready") // the trap is set
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		c, err := Start(spec("trap 'exit 8' TERM; touch " + ready + "; while :; do sleep 0.01; done"))
		started <- begun{c, err, syscall.Gettid()}
	}()
	b := <-started
	require.NoError(t, b.err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", b.thread))
		_, trap := os.Stat(ready)
		return trap == nil && (os.IsNotExist(err) || b.thread == os.Getpid()) // the first thread stays
	}, 10*time.Second, time.Millisecond)
	b.c.Signal(syscall.SIGTERM)
	require.Equal(t, Status{Code: 8}, b.c.Wait())
}

func TestEndedGroupIsNotSignalled(t *testing.T) {
	c, err := Start(spec("exit 3"))
	require.NoError(t, err)
	require.Equal(t, 3, c.Wait().ExitCode())
	c.mu.Lock()
	defer c.mu.Unlock()
	require.True(t, c.reaped)
}

func TestKillEndsAGroupThatForks(t *testing.T) {
	c, err := Start(spec("trap '' TERM; while :; do sleep 0.001 & done"))
	require.NoError(t, err)
	c.Stop(0)
	require.Equal(t, Status{Signal: syscall.SIGKILL}, c.Wait())
	require.Empty(t, c.others())
}

func TestZombiesAndOtherGroupsDoNotCount(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 "
	for _, c := range []struct {
		stat  string
		lives bool
	}{
		{"5 (sh) S" + rest + "1 0 9", true},
		{"5 (a) S 1) S" + rest + "1 0 9", true},
		{"5 (sh) Z" + rest + "1 0 9", false},
		{"5 (sh) Z" + rest + "2 0 9", true}, // the first of two threads has ended
		{"5 (sh) Z" + rest + "12 0 9", true},
		{"5 (sh) S 7 8 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9", false},
		{"5 (sh)", false},
	} {
		require.Equal(t, c.lives, livesIn([]byte(c.stat), 7), c.stat)
	}
}
