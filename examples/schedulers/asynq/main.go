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
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	closeTimeout = 3 * time.Second
	taskType     = "report"
	enqueues     = "enqueues a task"
	ticks        = 3 // before and after the crash
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
	replicas := map[string]*stage.Process{}
	lines := make(chan string)
	ended := make(chan struct{})
	for i := range 3 {
		name := fmt.Sprintf("replica-%d", i+1)
		p, err := e.Start(ctx, name, "replica", config{name, redis.Addr()})
		if err != nil {
			return err
		}
		replicas[name] = p
		go func() { // ends with the process
			for line := range p.Lines {
				select {
				case lines <- line:
				case <-ended:
				}
			}
		}()
	}
	var enqueued []time.Time
	killed := ""
	for len(enqueued) < 2*ticks {
		select {
		case line := <-lines:
			e.Say("%s", line)
			leader, text, _ := strings.Cut(line, " ")
			if text != enqueues {
				return errors.New(line)
			}
			// A delayed tick may come close to the next one, but not three ticks within a second.
			enqueued = append(enqueued, time.Now())
			if n := len(enqueued); n > 2 && enqueued[n-1].Sub(enqueued[n-3]) < time.Second {
				return errors.New("a task has been enqueued twice")
			}
			if len(enqueued) == ticks {
				killed = leader
				if err := replicas[leader].Kill(); err != nil {
					return err
				}
				e.Say("%s is killed; another leads when its lease has expired", leader)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(ended)
	for name, p := range replicas {
		p.Leave()
		if err := p.Wait(); err != nil && name != killed {
			return err
		}
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
	if len(tasks) < 2*ticks {
		return errors.New("tasks are missing")
	}
	return nil
}
