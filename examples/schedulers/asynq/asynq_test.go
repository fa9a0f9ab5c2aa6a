package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestAnotherReplicaGoesOnWithTheSchedule(t *testing.T) {
	t.Parallel()
	out := stagetest.Play(t)
	require.Regexp(t, `(replica-\d) is killed`, out)
	require.Regexp(t, `\d+ tasks wait in the queue`, out)
}

// A leader that cannot reach etcd stops enqueueing before another begins, and stands again with a new Scheduler.
func TestOneSchedulerIsActiveWhateverTheNetworkDoes(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	redis := miniredis.RunT(t)
	var terms, enqueued [2]atomic.Int64
	var links [2]*embedtest.Link
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(links))
	for i := range links {
		client, link := cluster.Link(t)
		links[i] = link
		sessions := session.Keep(client, session.WithTTL(2*time.Second))
		t.Cleanup(func() { _ = sessions.Close(context.Background()) })
		opts := options(func(_ *asynq.TaskInfo, err error) {
			if err == nil {
				enqueued[i].Add(1)
			}
		})
		go func() {
			ended <- schedule(ctx, etcdlock.NewElection(sessions, "scheduler"), "", asynq.RedisClientOpt{Addr: redis.Addr()}, opts,
				func(s *asynq.Scheduler) error {
					terms[i].Add(1)
					return everySecond(s)
				})
		}()
	}
	enqueues := func(i int) {
		from := enqueued[i].Load()
		require.Eventually(t, func() bool { return enqueued[i].Load() > from }, time.Minute, time.Millisecond)
	}
	require.Eventually(t, func() bool { return terms[0].Load()+terms[1].Load() > 0 }, time.Minute, time.Millisecond)
	leader := 0
	if terms[1].Load() > 0 {
		leader = 1
	}
	enqueues(leader)
	links[leader].Blackhole()
	enqueues(1 - leader)
	before := enqueued[leader].Load()
	enqueues(1 - leader)
	require.Equal(t, before, enqueued[leader].Load(), "the old leader is silent")
	links[leader].Heal()
	links[1-leader].Blackhole()
	enqueues(leader)
	require.Greater(t, terms[leader].Load(), int64(1), "with a new Scheduler")
	links[1-leader].Heal()
	cancel()
	for range links {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}
