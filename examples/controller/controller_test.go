package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestSomebodyLeadsWhateverHappens(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, fact := range []string{
		`node-1 leads, with token`,
		`node-\d stops leading: terminated`,
		`node-\d leads \S+ after the signal`,
		`node-\d stops leading: etcdlock: unhealthy: the cloud answers 503`,
		`node-\d leads \S+ after the failure; /healthz of node-\d says 503`,
		`node-\d leads \S+ after that, and does what node-\d did not`,
		`node-\d is refused: txn "controller": .*etcdlock: lost`,
		`node-\d leads \S+ after the crash`,
		`the fleet has size 11; /leader of all 2 replicas says node-\d`,
		`(?s)# +SIGTERM .*#.*ill health .*#.*ForceRelease .*#.*SIGKILL .*#.*the end `,
		`\d terms, 11 writes: each by the leader of its time`,
	} {
		require.Regexp(t, fact, out)
	}
	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

func TestALateWriteIsFound(t *testing.T) {
	t.Parallel()
	terms := []term{leading("a", 5), leading("b", 9)}
	require.NoError(t, checkWrites([]fleet{{1, "a", 5}, {2, "b", 9}}, terms))
	require.ErrorContains(t, checkWrites([]fleet{{1, "a", 5}, {2, "b", 9}, {3, "a", 5}}, terms), "deposed")
	require.ErrorContains(t, checkWrites([]fleet{{1, "a", 5}, {2, "c", 9}}, terms), "followed by")
	require.ErrorContains(t, checkWrites([]fleet{{1, "a", 5}, {1, "b", 9}}, terms), "followed by")
}

func leading(name string, token etcdlock.Token) term {
	return term{Leader: etcdlock.Leader{Value: name, Token: token}}
}

// The template, as it would run in a container.
func TestAReplicaRunsByItself(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	var out lines
	ended := make(chan error, 1)
	go func() {
		ended <- replicaMain(serving, []string{"-name", "solo", "-endpoints", strings.Join(cluster.Endpoints(), ",")}, &out)
	}()
	_, err := cluster.Client(t).Put(ctx, "controller/desired", "2")
	require.NoError(t, err)
	require.NoError(t, until(ctx, "a fleet", func() (bool, error) {
		_, actual, err := readFleet(ctx, cluster.Client(t), "controller/")
		return actual.Size == 2 && actual.By == "solo", err
	}))
	_, address, _ := strings.Cut(out.String(), "serves http://")
	address, _, _ = strings.Cut(address, "/")
	require.NoError(t, until(ctx, "/leader", func() (bool, error) {
		answer, err := get(ctx, "http://"+address+"/leader")
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		var report leaderReport
		err = json.NewDecoder(answer.Body).Decode(&report)
		return report.Leader == "solo" && report.Self, err
	}))
	answer, err := get(ctx, "http://"+address+"/healthz")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	stop()
	require.NoError(t, <-ended)
	left, err := cluster.Client(t).Get(ctx, "controller/locks", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

// lines may be written and read at the same time.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}
