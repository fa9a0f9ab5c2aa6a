package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestEachTickOnce(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, fact := range []string{
		`TryLock +runs of the job: 2\n`,
		`TryLock, WithMinHold +runs of the job: 1\n`,
		`tick   4  node-\d is in the middle of it`,
		`node-\d is killed`,
		`(?m)^    4  node-\d .* 1  killed in the middle`,
		`(?m)^    5  node-\d .* 1  (in time|missed by all, made up for)$`,
		`\d+ ticks, each begun exactly once, \d+ of them late, all finished but the one of node-\d`,
	} {
		require.Regexp(t, fact, out)
	}
	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

func TestTicksThatWereNotOnceAreFound(t *testing.T) {
	t.Parallel()
	records := func() []record {
		return []record{{Tick: 1, Done: true}, {Tick: 2}, {Tick: 3, Done: true}}
	}
	require.NoError(t, judge(records(), map[int]int{1: 1, 2: 1, 3: 1}, 2))
	require.ErrorContains(t, judge(records(), map[int]int{1: 1, 2: 1, 3: 2}, 2), "tick 3 has had 2 effects")
	require.ErrorContains(t, judge(records(), map[int]int{1: 1, 2: 1}, 2), "tick 3 has had 0 effects")
	require.ErrorContains(t, judge(records(), map[int]int{1: 1, 2: 1, 3: 1, 4: 1}, 2), "4 ticks have had effects")
	require.ErrorContains(t, judge(records(), map[int]int{1: 1, 2: 1, 3: 1}, 3), "tick 2: finished is false")
	require.ErrorContains(t, judge(records()[1:], map[int]int{2: 1, 3: 1}, 2), "tick 1 was not begun")
}
