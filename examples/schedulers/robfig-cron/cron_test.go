package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestNoTickIsRunTwice(t *testing.T) {
	t.Parallel()
	out := stagetest.Play(t)
	require.Regexp(t, `replica-\d is killed`, out)
	require.Contains(t, out, "No tick was run twice.")
}

// The job's context ends when etcd cannot be reached, and the loss is reported.
func TestALossEndsTheJob(t *testing.T) {
	t.Parallel()
	client, link := embedtest.Start(t).Link(t)
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	schedule := cron.New()
	failed := make(chan error, 1)
	var runs atomic.Int64
	_, err := addJob(schedule, "@every 1s", sessions, "report", 0, func(err error) {
		select {
		case failed <- err:
		default:
		}
	}, func(ctx context.Context, _ *etcdlock.Hold) error {
		if runs.Add(1) == 1 {
			link.Blackhole()
			<-ctx.Done()
		}
		return ctx.Err()
	})
	require.NoError(t, err)
	schedule.Start()
	require.ErrorIs(t, <-failed, etcdlock.ErrLost)
	link.Heal()
	require.Eventually(t, func() bool { return runs.Load() > 1 }, time.Minute, time.Millisecond, "with a new session")
	<-schedule.Stop().Done()
}
