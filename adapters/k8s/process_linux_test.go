package k8slock_test

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
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// childEnv has the test binary be a replica: its identity, and etcd's addresses.
const childEnv = "K8SLOCK_TEST_CHILD"

func init() {
	if arguments := os.Getenv(childEnv); arguments != "" {
		child(strings.Fields(arguments))
		os.Exit(0)
	}
}

// child leads once. It writes to etcd all the time, under the guard of its term.
func child(arguments []string) {
	klog.SetLogger(klog.Logger{})
	client, err := clientv3.New(clientv3.Config{Endpoints: arguments[1:]})
	if err != nil {
		panic(err)
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
		panic(err)
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		panic(err)
	}
	elector.Run(ctx)
	if err := lock.Close(ctx); err != nil { // waits for the work
		panic(err)
	}
	fmt.Println("closed")
}

type process struct {
	*exec.Cmd
	lines chan string
}

func run(t *testing.T, cluster *embedtest.Cluster, who string) *process {
	t.Helper()
	p := &process{exec.CommandContext(t.Context(), os.Args[0]), make(chan string, 99)}
	p.Env = append(os.Environ(), childEnv+"="+who+" "+strings.Join(cluster.Endpoints(), " "))
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-done
		_ = p.Wait()
	})
	return p
}

// says waits for a line that begins so, which is the next.
func (p *process) says(t *testing.T, what string) {
	t.Helper()
	select {
	case line := <-p.lines:
		require.True(t, strings.HasPrefix(line, what), "%q, not %q", line, what)
	case <-time.After(time.Minute):
		require.FailNow(t, "it does not say "+what)
	}
}

func TestAnotherProcessLeadsAfterAKill(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a := run(t, cluster, "a")
	a.says(t, "leads")
	b := run(t, cluster, "b")
	inLine(t, cluster.Client(t), 1)
	require.NoError(t, a.Process.Kill())
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
	for line := range a.lines {
		what, text, _ := strings.Cut(line, ":")
		said[what] = text
	}
	require.Contains(t, said["ended"], "lost")
	require.Equal(t, " false", said["late write"])
	require.Contains(t, said, "stopped")
	require.Contains(t, said, "closed")
	require.Empty(t, b.lines, "it still leads")
}
