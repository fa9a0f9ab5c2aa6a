package gocronlock_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	gocronlock "github.com/etcdlock/locks/adapters/gocron"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/testchild"
	"github.com/etcdlock/locks/session"
)

// childVariable makes the test binary a process of a fleet: its name, and etcd's addresses.
const childVariable = "GOCRONLOCK_TEST_CHILD"

func init() {
	testchild.Be(childVariable, func(arguments []string) error { return child(arguments[0], arguments[1:]) })
}

// child runs a job every 50 ms while it leads. A run is a write under the guard of the term, and prints its revision. At
// the end of a term it says so.
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
	var terms sync.Map // that have had a run
	run := func() {
		term, ok := elector.Term()
		if !ok {
			return
		}
		if _, known := terms.LoadOrStore(term, true); !known {
			context.AfterFunc(term.Context(), func() { fmt.Println("stands by") })
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
	select {} // it ends by a signal
}

// process is a child.
type process struct{ *testchild.Child }

func start(t *testing.T, cluster *embedtest.Cluster, name string) process {
	t.Helper()
	return process{testchild.Start(t, childVariable, append([]string{name}, cluster.Endpoints()...)...)}
}

// runs returns the revision of the next run.
func (p process) runs(t *testing.T) (revision int64) {
	t.Helper()
	line := p.Next(t)
	_, err := fmt.Sscan(line, &revision)
	require.NoError(t, err, line)
	return revision
}

// pair starts a process that leads, and one that waits.
func pair(t *testing.T) (leader, next process) {
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
	leader.Kill()
	next.runs(t)
}

// A stopped process cannot notice its loss. When it goes on, it starts no job, and a run that it had begun writes nothing.
func TestAStoppedProcessRunsNoJobWhenItGoesOn(t *testing.T) {
	t.Parallel()
	leader, next := pair(t)
	require.NoError(t, leader.Process.Signal(syscall.SIGSTOP))
	first := next.runs(t)
	require.NoError(t, leader.Process.Signal(syscall.SIGCONT))
	for line := leader.Next(t); line != "stands by"; line = leader.Next(t) {
		var revision int64
		_, err := fmt.Sscan(line, &revision)
		require.NoError(t, err, line)
		require.Less(t, revision, first, "it has run a job beside the next leader")
	}
	for range 3 {
		next.runs(t)
	}
	require.Empty(t, leader.Lines)
}
