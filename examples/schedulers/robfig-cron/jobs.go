package main

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// addJob adds a job to the schedule of this process, which is run once per tick in the whole fleet. The lock stays taken for
// apart at least, so that a process whose clock is behind finds it taken: it has to be longer than the clocks differ, and
// shorter than the interval less that. An error is one of etcd, a loss, or of the job; that another process has the tick is none.
func addJob(c *cron.Cron, spec string, src session.Source, name string, apart time.Duration, onError func(error),
	job func(ctx context.Context, h *etcdlock.Hold) error, opts ...etcdlock.Option) (cron.EntryID, error) {
	opts = append(opts[:len(opts):len(opts)], etcdlock.WithMinHold(apart))
	return c.AddFunc(spec, etcdlock.Job(etcdlock.NewMutex(src, name, opts...), onError, job))
}
