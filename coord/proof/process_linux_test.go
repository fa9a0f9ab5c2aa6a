package proof_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	processID       = "COORD_PROOF_ID"
	processEndpoint = "COORD_PROOF_ENDPOINT"
	processShards   = 32
	processTTL      = 2 * time.Second
)

// runAsChild is for the test that needs other processes: they run this program again.
func runAsChild() bool {
	id := os.Getenv(processID)
	if id == "" {
		return false
	}
	if err := process(id, os.Getenv(processEndpoint)); err != nil {
		panic(err)
	}
	return true
}

// process is a member until its input ends. Its works write under their guards all the time.
func process(id, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	sessions := session.Keep(client, session.WithTTL(processTTL))
	s := coord.NewShards(sessions, "x", processShards, coord.WithSettle(200*time.Millisecond))
	err = s.Run(ctx, id, func(ctx context.Context, h *etcdlock.Hold, shard int) error {
		for ctx.Err() == nil {
			_, _ = h.Txn(ctx).Then(clientv3.OpPut(fmt.Sprint("work/", shard), strconv.FormatInt(int64(h.Token()), 10))).Commit()
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // so that there are not too many
		}
		return nil
	})
	if ctx.Err() == nil {
		return err
	}
	return sessions.Close(context.Background())
}

// start starts a process that is a member.
func (f *fleet) start(id string) (*member, *exec.Cmd) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processID+"="+id, processEndpoint+"="+f.cluster.Endpoints()[0])
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	m := &member{id: id, weight: 1, over: make(chan struct{}), cancel: func(error) { _ = input.Close() }}
	f.members = append(f.members, m)
	f.ended.Go(func() {
		defer close(m.over)
		_ = cmd.Wait()
	})
	return m, cmd
}

// A process that is stopped for longer than its TTL writes nothing when it goes on, and is a member again.
func TestProcessesThatAreStoppedOrKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, processShards, processTTL)
	f.start("m1")
	stopped, cmd := f.start("m2")
	killed, victim := f.start("m3")
	f.rest()
	for range 2 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		f.drop(stopped)
		f.rest()
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		f.members = append(f.members, stopped)
		f.rest()
	}
	require.NoError(t, victim.Process.Kill())
	f.drop(killed)
	f.rest()
	f.finish()
}
