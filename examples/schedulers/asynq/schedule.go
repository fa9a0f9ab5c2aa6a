package main

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/etcdlock/locks/etcdlock"
)

// schedule enqueues periodic tasks while this process leads, until ctx ends. It stands in the election with id. A Scheduler of
// asynq cannot be started again, so each term has a new one, which register fills.
//
// At a change of leader a task may be enqueued twice or not at all, since the clocks of two machines differ and nothing enqueues
// between two leaders. Give the task asynq.Unique, for a little less than its interval, where twice is too often.
func schedule(ctx context.Context, election *etcdlock.Election, id string, redis asynq.RedisConnOpt, opts *asynq.SchedulerOpts,
	register func(*asynq.Scheduler) error) error {
	return election.Run(ctx, id, func(ctx context.Context, _ *etcdlock.Term) error {
		s := asynq.NewScheduler(redis, opts)
		if err := register(s); err != nil {
			return err
		}
		if err := s.Start(); err != nil { // not Run, which waits for a signal to the process
			return err
		}
		<-ctx.Done() // also at a loss, before another process can lead
		s.Shutdown()
		return nil
	})
}
