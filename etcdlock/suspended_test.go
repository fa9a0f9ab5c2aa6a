//go:build unix

package etcdlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Scenario H8: a process that was stopped for longer than its TTL sees the loss at its
// first look, and what it writes without looking is refused.
func TestStoppedProcessSeesTheLossAtTheFirstLook(t *testing.T) {
	cluster, _ := newCluster(t)
	process := exec.CommandContext(within(t), os.Args[0])
	process.Env = append(os.Environ(), childRole+"=holder", childEndpoint+"="+cluster.Endpoints()[0])
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "held", lines.Text())

	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	next := lock(t, newMutex(t, cluster))
	_, err = fmt.Fprintln(in, "look")
	require.NoError(t, err)
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))

	require.True(t, lines.Scan())
	require.Equal(t, "first look: lost", lines.Text())
	require.True(t, lines.Scan())
	require.Equal(t, "guarded write: refused", lines.Text())
	require.NoError(t, process.Wait())
	require.NoError(t, next.Err())
	unlock(t, next)
}

const (
	childRole     = "ETCDLOCK_TEST_ROLE"
	childEndpoint = "ETCDLOCK_TEST_ENDPOINT"
)

// child is the other process of a test.
func child(string) int {
	if err := holdAndLook(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func holdAndLook() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv(childEndpoint)}})
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := session.New(ctx, client, session.WithTTL(2*time.Second))
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	h, err := etcdlock.NewMutex(s, "orders").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held")

	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	fmt.Println("first look:", word(errors.Is(h.Err(), etcdlock.ErrLost), "lost", "held"))
	answer, err := client.Txn(ctx).If(h.Guard()).Then(clientv3.OpPut("written", "late")).Commit()
	if err != nil {
		return err
	}
	fmt.Println("guarded write:", word(answer.Succeeded, "accepted", "refused"))
	return nil
}

func word(yes bool, one, other string) string {
	if yes {
		return one
	}
	return other
}
