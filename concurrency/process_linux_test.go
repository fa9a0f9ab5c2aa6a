package concurrency_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// programVariable makes the test binary a program: the name of a package, and etcd's addresses.
const programVariable = "CONCURRENCY_TEST_PROGRAM"

func init() {
	if arguments := strings.Fields(os.Getenv(programVariable)); len(arguments) > 0 {
		fmt.Println(program(arguments[0], arguments[1:])) // it ends by a signal, or a failure
		os.Exit(1)
	}
}

// program counts under the lock, over and over. It prints a line when it has the lock.
func program(name string, endpoints []string) error {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return err
	}
	k := map[string]kit{"ours": ours, "etcds": etcds}[name]
	s, err := k.newSession(ctx, client, 2)
	if err != nil {
		return err
	}
	m := k.newMutex(s, "orders")
	for {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		fmt.Println("holds", m.Header().Revision)
		if err := count(ctx, client, m, "stock"); err != nil {
			return err
		}
		if err := m.Unlock(ctx); err != nil {
			return err
		}
	}
}

// launch starts a program, whose output goes to told. It returns when the program has stood in line and held.
func launch(t *testing.T, cluster *embedtest.Cluster, name string, told chan<- string) (kill func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), programVariable+"="+name+" "+strings.Join(cluster.Endpoints(), " "))
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	ended, held := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for first := true; lines.Scan(); first = false {
			if first {
				close(held)
			}
			if line := lines.Text(); !strings.HasPrefix(line, "holds ") {
				told <- name + ": " + line
			}
		}
	}()
	kill = func() {
		_ = c.Process.Kill()
		<-ended
		_ = c.Wait()
	}
	t.Cleanup(kill)
	select {
	case <-held:
	case <-ended:
		require.FailNow(t, "a program has ended", "%s", name)
	case <-time.After(time.Minute):
		require.FailNow(t, "a program does not get the lock", "%s", name)
	}
	return kill
}

// Programs of both packages count under one lock, and are killed at any moment. The others go on, and no count is lost.
func TestAFleetOfBothPackagesOutlivesItsKilledPrograms(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	told := make(chan string, 99)
	kills := map[string]func(){}
	names := []string{"ours", "etcds"}
	for _, name := range names {
		launch(t, cluster, name, told) // two that live on
		kills[name] = launch(t, cluster, name, told)
	}
	for round := range 4 {
		name := names[round%2]
		kills[name]()
		kills[name] = launch(t, cluster, name, told) // it holds only after those that were killed have gone
	}
	require.Empty(t, told, "a program has failed")
	answer, err := cluster.Client(t).Get(t.Context(), "stock")
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	require.Equal(t, fmt.Sprint(answer.Kvs[0].Version), string(answer.Kvs[0].Value), "two programs have counted at a time")
}
