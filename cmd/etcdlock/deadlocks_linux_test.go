package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// crossed starts two runs on a cluster, each of which takes a second lock under its first: those of the other, if the
// order is not the same.
func crossed(t *testing.T, endpoints []string, orders ...[2]string) (runs []*tool) {
	t.Helper()
	begin := filepath.Join(t.TempDir(), "begin")
	for _, locks := range orders {
		script := fmt.Sprintf(`echo first; until test -e %s; do sleep 0.01; done; exec %s run %s echo second`, begin, binary, locks[1])
		runs = append(runs, prepare(t, endpoints, "run", locks[0], "--", "sh", "-c", script).start())
	}
	runs[0].says("first")
	if orders[0][0] != orders[1][0] {
		runs[1].says("first")
	}
	require.NoError(t, os.WriteFile(begin, nil, 0o600))
	return runs
}

func TestDeadlocksNamesBothProcesses(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	none := prepare(t, cluster.Endpoints(), "deadlocks").start()
	require.Zero(t, none.code())
	require.Empty(t, none.out.String())
	require.Contains(t, none.errors.String(), "no deadlock is seen")

	runs := crossed(t, cluster.Endpoints(), [2]string{"a", "b"}, [2]string{"b", "a"})
	client := cluster.Client(t)
	eventually(t, "two waiters", func() bool {
		answer, err := client.Get(within(t), "etcdlock/", withKeysOf()...)
		return err == nil && answer.Count == 4
	})
	table := prepare(t, cluster.Endpoints(), "deadlocks", "--lines").start()
	require.Equal(t, exitDeadlock, table.code())
	text := table.out.String()
	require.Contains(t, text, "deadlock:\n")
	require.NotContains(t, text, "possible")
	for _, r := range runs {
		require.Contains(t, text, fmt.Sprintf(":%d etcdlock", r.cmd.Process.Pid))
	}
	require.Equal(t, 4, strings.Count(text, "in line for"), text)
	require.Contains(t, text, "the line of a:")
	require.Contains(t, text, "the line of b:")

	asked := prepare(t, cluster.Endpoints(), "deadlocks", "-o", "json").start()
	require.Equal(t, exitDeadlock, asked.code())
	var found []deadlock
	require.NoError(t, json.Unmarshal([]byte(asked.out.String()), &found))
	require.Len(t, found, 1)
	require.True(t, found[0].Certain)
	require.Len(t, found[0].Places, 4)
	require.Equal(t, []bool{true, false, true, false}, []bool{
		found[0].Places[0].Holds, found[0].Places[1].Holds, found[0].Places[2].Holds, found[0].Places[3].Holds,
	})

	graph := prepare(t, cluster.Endpoints(), "wait-graph").start()
	require.Zero(t, graph.code())
	require.Equal(t, 4, strings.Count(graph.out.String(), "->"))
	require.True(t, strings.HasPrefix(graph.out.String(), "digraph waits {"))
	require.Equal(t, 2, strings.Count(graph.out.String(), `\nholds `))
}

func TestOneOrderIsNoDeadlock(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	holder := prepare(t, cluster.Endpoints(), "run", "b").start()
	holder.says("etcdlock/b/")
	crossed(t, cluster.Endpoints(), [2]string{"a", "b"}, [2]string{"c", "b"})
	client := cluster.Client(t)
	eventually(t, "two waiters", func() bool {
		answer, err := client.Get(within(t), "etcdlock/", withKeysOf()...)
		return err == nil && answer.Count == 5
	})
	r := prepare(t, cluster.Endpoints(), "deadlocks", "-o", "json").start()
	require.Zero(t, r.code())
	require.Equal(t, "[]\n", r.out.String())
}

// withKeysOf counts the keys below a prefix.
func withKeysOf() []clientv3.OpOption {
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}
}
