package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestAFleetMovesOverAtWork(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, fact := range []string{
		`"jobs"\) +no: it has got the lock as well`,
		`AtPrefix\(\)\) +yes: etcdlock: busy`,
		`(?m)^ +4 +0 +\d+ .* 0 +0 +0$`,
		`(?m)^ +2 +2 +\d+ `,
		`create revision +\d+  holds`,
		`create revision +\d+  waits  etcdlock: worker-\d, pid \d+`,
		`(?m)^ +0 +4 +\d+ `,
		`\d+ turns, never two at a time, each by the first in line`,
		`handed [1-9]\d* times from etcd's client to ours and [1-9]\d* times back`,
	} {
		require.Regexp(t, fact, out)
	}
	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

func TestWhoDoesNotStandFirstIsFound(t *testing.T) {
	t.Parallel()
	worked := func(name, key string) []byte {
		value, err := json.Marshal(turn{job: job{Name: name, Kind: ours}, Key: key})
		require.NoError(t, err)
		return value
	}
	a := &audit{line: map[string]int64{"jobs/a": 5, "jobs/b": 6}, handed: map[handOver]int{}}
	_, err := a.check(worked("b", "jobs/b"))
	require.ErrorContains(t, err, "b worked at place 6 while jobs/a was at 5")
	_, err = a.check(worked("c", "elsewhere/c"))
	require.ErrorContains(t, err, "c worked at place 0")
	_, err = a.check(worked("a", "jobs/a"))
	require.NoError(t, err)
	_, err = a.check(worked("a", "jobs/a"))
	require.ErrorContains(t, err, "after 5", "a place is for one turn")
}
