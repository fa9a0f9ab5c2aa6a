package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/testchild"
)

// programVariable makes the test binary a program: the name of a package, and etcd's addresses.
const programVariable = "CONCURRENCY_TEST_PROGRAM"

func init() {
	testchild.Be(programVariable, func(arguments []string) error { return program(arguments[0], arguments[1:]) })
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
	p := testchild.Start(t, programVariable, append([]string{name}, cluster.Endpoints()...)...)
	require.True(t, strings.HasPrefix(p.Next(t), "holds "))
	go func() {
		for line := range p.Lines {
			if !strings.HasPrefix(line, "holds ") {
				told <- name + ": " + line
			}
		}
	}()
	return p.Kill
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
