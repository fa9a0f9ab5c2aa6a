package k8slock_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/testchild"
	"github.com/etcdlock/locks/session"
)

// childEnv has the test binary be a replica: its identity, and etcd's addresses.
const childEnv = "K8SLOCK_TEST_CHILD"

func init() { testchild.Be(childEnv, child) }

// child leads once. It writes to etcd all the time, under the guard of its term.
func child(arguments []string) error {
	klog.SetLogger(klog.Logger{})
	client, err := clientv3.New(clientv3.Config{Endpoints: arguments[1:]})
	if err != nil {
		return err
	}
	lock := k8slock.New(session.Keep(client, session.WithTTL(2*time.Second)), name, arguments[0])
	ctx := context.Background()
	config, err := lock.Config(ctx, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			guard := lock.Guard()
			fmt.Println("leads")
			write := func() (*clientv3.TxnResponse, error) {
				return client.Txn(context.Background()).If(guard).Then(clientv3.OpPut("last", arguments[0])).Commit()
			}
			for ctx.Err() == nil {
				_, _ = write()
			}
			fmt.Println("ended:", context.Cause(ctx))
			late, err := write()
			for err != nil {
				late, err = write()
			}
			fmt.Println("late write:", late.Succeeded)
		},
		OnStoppedLeading: func() { fmt.Println("stopped") },
	})
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return err
	}
	elector.Run(ctx)
	if err := lock.Close(ctx); err != nil { // waits for the work
		return err
	}
	fmt.Println("closed")
	return nil
}

// process is a replica.
type process struct{ *testchild.Child }

func run(t *testing.T, cluster *embedtest.Cluster, identity string) process {
	t.Helper()
	return process{testchild.Start(t, childEnv, append([]string{identity}, cluster.Endpoints()...)...)}
}

// says requires that the next line begins so.
func (p process) says(t *testing.T, what string) {
	t.Helper()
	line := p.Next(t)
	require.True(t, strings.HasPrefix(line, what), "%q, not %q", line, what)
}

func TestAnotherProcessLeadsAfterAKill(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a := run(t, cluster, "a")
	a.says(t, "leads")
	b := run(t, cluster, "b")
	inLine(t, cluster.Client(t), 1)
	a.Kill()
	b.says(t, "leads")
}

// A stopped process cannot notice its loss. When it goes on, it learns of it at the first look, and etcd refuses its
// write.
func TestAStoppedProcessIsReplacedAndItsLateWriteRefused(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a := run(t, cluster, "a")
	a.says(t, "leads")
	b := run(t, cluster, "b")
	inLine(t, cluster.Client(t), 1)
	require.NoError(t, a.Process.Signal(syscall.SIGSTOP))
	b.says(t, "leads")
	require.NoError(t, a.Process.Signal(syscall.SIGCONT))
	said := map[string]string{}
	for line := range a.Lines {
		what, text, _ := strings.Cut(line, ":")
		said[what] = text
	}
	require.Contains(t, said["ended"], "lost")
	require.Equal(t, " false", said["late write"])
	require.Contains(t, said, "stopped")
	require.Contains(t, said, "closed")
	require.Empty(t, b.Lines, "it still leads")
}
