// Asynq is the story of a fleet whose periodic tasks are enqueued once, with asynq and a Redis.
//
//	go -C examples/schedulers run ./asynq
//
// starts three processes that all could enqueue a task every second. The one that leads is killed; another goes on after the
// TTL. No task is enqueued twice.
//
// The part to copy is schedule.go: a new Scheduler for each term of an election. asynq says itself that a Scheduler has to run
// once in a fleet, and leaves open how.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/examples/schedulers/internal/fleet"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	closeTimeout = 3 * time.Second
	taskType     = "report"
	enqueues     = "enqueues a task"
)

var program = stage.Program{Name: "asynq", Story: story, Roles: map[string]stage.Act{"replica": replica}}

func main() { program.Main() }

type config struct {
	Name  string
	Redis string
}

// quiet is a logger for asynq that logs nothing.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

func options(enqueued func(*asynq.TaskInfo, error)) *asynq.SchedulerOpts {
	return &asynq.SchedulerOpts{Logger: quiet{}, PostEnqueueFunc: enqueued}
}

// everySecond registers a task. With an interval of minutes it would be asynq.Unique as well, for a little less than that.
func everySecond(s *asynq.Scheduler) error {
	_, err := s.Register("@every 1s", asynq.NewTask(taskType, nil))
	return err
}

func replica(ctx context.Context, e *stage.Etcd) (err error) {
	var c config
	if err := e.Job(&c); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, sessions.Close(bounded))
	}()
	election := etcdlock.NewElection(sessions, "scheduler", etcdlock.WithNamespace(e.Prefix+"locks"))
	enqueued := func(_ *asynq.TaskInfo, err error) {
		if err != nil {
			e.Printf("%s fails to enqueue: %v\n", c.Name, err)
			return
		}
		e.Printf("%s %s\n", c.Name, enqueues)
	}
	err = schedule(ctx, election, c.Name, asynq.RedisClientOpt{Addr: c.Redis}, options(enqueued), everySecond)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func story(ctx context.Context, e *stage.Etcd) error {
	redis, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer redis.Close()
	e.Printf("Three replicas could enqueue a task every second; TTL %v.\n\n", ttl)
	err = fleet.Story(ctx, e, enqueues, "; another leads when its lease has expired", func(name string, _ int) any {
		return config{name, redis.Addr()}
	})
	if err != nil {
		return err
	}
	return verify(e, redis.Addr())
}

// verify requires that the tasks are in Redis.
func verify(e *stage.Etcd, address string) error {
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: address})
	defer inspector.Close()
	tasks, err := inspector.ListPendingTasks("default", asynq.PageSize(1000))
	if err != nil {
		return err
	}
	e.Printf("\n%d tasks wait in the queue.\n", len(tasks))
	if len(tasks) < 2*fleet.Ticks {
		return errors.New("tasks are missing")
	}
	return nil
}
