// Migrate is the story of a fleet that uses etcd's concurrency.Mutex and moves to this library: process by
// process, at the same lock, while the work goes on.
//
//	go run ./examples/migrate
//
// starts four workers of the old kind at one queue and replaces them one by one, so that for a
// while both kinds stand in the same line. An auditor reads every change of the queue from etcd,
// in order: a worker that works must be the first in line by create revision, whichever kind it is, and
// nobody else may be at work. For each stage it shows how long a worker waited for its turn.
//
// What changes in the service is in worker.go, in the function open: concurrency.NewMutex(s, prefix)
// becomes etcdlock.NewMutex(sessions, prefix, etcdlock.AtPrefix()).
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	workers = 4
	turns   = 6 // of each worker in a stage, at least
)

var program = stage.Program{Name: "migrate", Story: story, Roles: map[string]stage.Act{"worker": worker}}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) (err error) {
	if err := mistake(ctx, e); err != nil {
		return err
	}
	a, err := newAudit(ctx, e)
	if err != nil {
		return err
	}
	e.Printf("\nThe roll-over: %d workers at one queue, %v of work at a time, replaced one by one.\n\n", workers, workTime)
	e.Printf("   workers              waited for a turn            handed over by and to etcd's client (e), ours (o)\n")
	e.Printf("etcd etcdlock  turns       median      95 %%  turns/s   e->e   e->o   o->e   o->o\n")
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var fleet []*stage.Process
	defer func() { err = errors.Join(err, leave(fleet...)) }()
	kinds := map[string]string{}
	for i := range 2 * workers {
		j := job{fmt.Sprintf("worker-%d", i+1), etcds}
		if i >= workers {
			j.Kind = ours
		}
		p, err := e.Start(ctx, j.Name, "worker", j)
		if err != nil {
			return err
		}
		go func() { // ends with the process
			if err := p.Wait(); err != nil {
				fail(err)
			}
		}()
		fleet, kinds[j.Name] = append(fleet, p), j.Kind
		if i >= workers {
			oldest := fleet[0]
			fleet = fleet[1:]
			delete(kinds, oldest.Name)
			if err := leave(oldest); err != nil {
				return err
			}
		}
		if len(fleet) < workers {
			continue
		}
		phase, err := a.watch(ctx, kinds)
		if err != nil {
			return err
		}
		phase.print(e)
		if 2*phase.kinds[ours] == workers {
			if err := show(ctx, e); err != nil {
				return err
			}
		}
	}
	last := fleet
	fleet = nil
	if err := leave(last...); err != nil {
		return err
	}
	e.Printf("\n")
	return a.finish(ctx)
}

// leave asks processes to leave and waits until they have.
func leave(processes ...*stage.Process) (err error) {
	for _, p := range processes {
		p.Leave()
	}
	for _, p := range processes {
		err = errors.Join(err, p.Wait())
	}
	return err
}

// mistake shows what happens without AtPrefix: the new code waits in another queue.
func mistake(ctx context.Context, e *stage.Etcd) (err error) {
	e.Printf("The old code has the lock. Does the new code see that?\n\n")
	old, err := concurrency.NewSession(e.Client, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	mutex := concurrency.NewMutex(old, queue(e))
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() { err = errors.Join(err, bounded(ctx, sessions.Close)) }()

	h, err := etcdlock.NewMutex(sessions, "jobs", etcdlock.WithNamespace(e.Prefix+"locks")).TryLock(ctx)
	if err != nil {
		return fmt.Errorf("a lock of another prefix: %w", err)
	}
	e.Printf("  NewMutex(sessions, \"jobs\")                     no: it has got the lock as well, at another prefix\n")
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	_, err = etcdlock.NewMutex(sessions, queue(e), etcdlock.AtPrefix()).TryLock(ctx)
	if !errors.Is(err, etcdlock.ErrBusy) {
		return fmt.Errorf("two holders at one prefix: %w", err)
	}
	e.Printf("  NewMutex(sessions, \".../jobs\", AtPrefix())     yes: %v\n", etcdlock.ErrBusy)
	return mutex.Unlock(ctx)
}

// show prints the line when both kinds stand in it.
func show(ctx context.Context, e *stage.Etcd) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		q, err := etcdlock.Inspect(ctx, e.Client, queue(e), etcdlock.AtPrefix())
		if err != nil {
			return err
		}
		if len(q.Places) == workers {
			e.Printf("      the line at this moment, as Inspect shows it:\n")
			for _, p := range q.Places {
				does, who := "waits", etcds
				if p.Holding {
					does = "holds"
				}
				if p.Owner.Label != "" {
					who = fmt.Sprintf("%s: %s, pid %d", ours, p.Owner.Label, p.Owner.PID)
				}
				e.Printf("        create revision %5d  %s  %s\n", p.Token, does, who)
			}
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
