package gocronlock_test

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

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	gocronlock "github.com/etcdlock/locks/adapters/gocron"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// childVariable makes the test binary a process of a fleet: its name, and etcd's addresses.
const childVariable = "GOCRONLOCK_TEST_CHILD"

func init() {
	if arguments := strings.Fields(os.Getenv(childVariable)); len(arguments) > 0 {
		fmt.Println(child(arguments[0], arguments[1:])) // it ends by a signal, or a failure
		os.Exit(1)
	}
}

// child runs a job every 50 ms while it leads. A run is a write under the guard of the term, and prints its revision.
func child(name string, endpoints []string) error {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return err
	}
	elector := gocronlock.NewElector(session.Keep(client, session.WithTTL(2*time.Second)), "scheduler", name)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	run := func() {
		term, ok := elector.Term()
		if !ok {
			return
		}
		written, err := term.Txn(ctx).Then(clientv3.OpPut("last run", name)).Commit()
		if err == nil {
			fmt.Println(written.Header.Revision)
		}
	}
	if _, err := scheduler.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(run), gocron.WithName("report")); err != nil {
		return err
	}
	scheduler.Start()
	for led := false; ; time.Sleep(10 * time.Millisecond) {
		leads := elector.IsLeader(ctx) == nil
		if led && !leads {
			fmt.Println("stands by")
		}
		led = leads
	}
}

// process is a child. Its lines are those that it has printed.
type process struct {
	*exec.Cmd
	lines chan string
}

func start(t *testing.T, cluster *embedtest.Cluster, name string) *process {
	t.Helper()
	p := &process{exec.Command(os.Args[0]), make(chan string, 9999)}
	p.Env = append(os.Environ(), childVariable+"="+name+" "+strings.Join(cluster.Endpoints(), " "))
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-read
		_ = p.Wait()
	})
	return p
}

// next is the next line.
func (p *process) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(time.Minute):
		require.FailNow(t, "it says nothing")
		return ""
	}
}

// runs returns the revision of the next run.
func (p *process) runs(t *testing.T) (revision int64) {
	t.Helper()
	line := p.next(t)
	_, err := fmt.Sscan(line, &revision)
	require.NoError(t, err, line)
	return revision
}

// pair starts a process that leads, and one that waits.
func pair(t *testing.T) (leader, next *process) {
	cluster := embedtest.Start(t)
	leader = start(t, cluster, "a")
	leader.runs(t)
	next = start(t, cluster, "b")
	election := etcdlock.NewElection(keep(t, cluster.Client(t)), "scheduler")
	require.Eventually(t, func() bool {
		waiting, err := election.Candidates(t.Context())
		return err == nil && len(waiting) == 1
	}, time.Minute, time.Millisecond)
	return leader, next
}

func TestAnotherProcessRunsTheJobsAfterAKill(t *testing.T) {
	t.Parallel()
	leader, next := pair(t)
	require.NoError(t, leader.Process.Kill())
	next.runs(t)
}

// A stopped process cannot notice its loss. When it goes on, it starts no job, and a run that it had begun writes nothing.
func TestAStoppedProcessRunsNoJobWhenItGoesOn(t *testing.T) {
	t.Parallel()
	leader, next := pair(t)
	require.NoError(t, leader.Process.Signal(syscall.SIGSTOP))
	first := next.runs(t)
	require.NoError(t, leader.Process.Signal(syscall.SIGCONT))
	for line := leader.next(t); line != "stands by"; line = leader.next(t) {
		var revision int64
		_, err := fmt.Sscan(line, &revision)
		require.NoError(t, err, line)
		require.Less(t, revision, first, "it has run a job beside the next leader")
	}
	for range 3 {
		next.runs(t)
	}
	require.Empty(t, leader.lines)
}
