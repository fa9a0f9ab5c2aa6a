// Robfig-cron is the story of a job that every replica has in its schedule, with robfig/cron, and that runs once per tick.
//
//	go -C examples/schedulers run ./robfig-cron
//
// starts three processes with a job every second, and different clocks. One is killed while it runs the job; the others go on after the TTL.
//
// The part to copy is jobs.go. Example cron shows why a lock alone is not enough, and how ticks can be caught up with.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/examples/schedulers/internal/fleet"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	behind       = 100 * time.Millisecond // the clock of each replica that of the one before
	apart        = 500 * time.Millisecond
	closeTimeout = 3 * time.Second
	runs         = "runs the job"
)

var program = stage.Program{Name: "robfig-cron", Story: story, Roles: map[string]stage.Act{"replica": replica}}

func main() { program.Main() }

type config struct {
	Name   string
	Behind time.Duration // its clock
}

// late runs jobs as a process does whose clock is behind.
func late(behind time.Duration) cron.Option {
	return cron.WithChain(func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			time.Sleep(behind)
			job.Run()
		})
	})
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
	schedule := cron.New(late(c.Behind))
	_, err = addJob(schedule, "@every 1s", sessions, "report", apart,
		func(err error) { e.Printf("%s failed: %v\n", c.Name, err) },
		func(context.Context, *etcdlock.Hold) error {
			e.Printf("%s %s\n", c.Name, runs)
			return nil
		}, etcdlock.WithNamespace(e.Prefix+"locks"))
	if err != nil {
		return err
	}
	schedule.Start()
	<-ctx.Done()
	<-schedule.Stop().Done() // waits for jobs that run
	return nil
}

func story(ctx context.Context, e *stage.Etcd) error {
	e.Printf("Three replicas have the same schedule, a job every second; TTL %v.\n\n", ttl)
	err := fleet.Story(ctx, e, runs, "", func(name string, number int) any {
		return config{name, time.Duration(number) * behind}
	})
	if err != nil {
		return err
	}
	e.Printf("\nNo tick was run twice.\n")
	return nil
}
