// Controller is the story of a service with several replicas, of which exactly one must do the work.
// When the leader is stopped for an update, the next one goes on at once. When a dependency of the leader
// fails, it resigns by itself. When it hangs, an operator removes it, and its late writes
// are refused. When it crashes, another one goes on after about its lease's TTL.
//
//	go run ./examples/controller
//
// starts three replicas and does all of that to them. At the end it prints a timeline of the leaders, and
// compares it with etcd's history. The service itself is in controller.go (Election.Run, a
// reconcile loop, Term.Txn) and replica.go (sessions, /healthz and /leader, the end). The
// other files are the stage. The service is a template. A single replica runs with
//
//	go run ./examples/controller replica -endpoints host:2379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
)

// ttl is short, so that nobody falls asleep; a service does well with the default of 15 s.
const ttl = 2 * time.Second

var (
	program = stage.Program{Name: "controller", Story: story, Roles: map[string]stage.Act{"replica": replica}}
	names   = []string{"node-1", "node-2", "node-3"}
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "replica" {
		program.Main()
	}
	if err := replicaMain(context.Background(), os.Args[2:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "controller replica:", err)
		os.Exit(1)
	}
}

// replica is a process that the story has started.
func replica(ctx context.Context, e *stage.Etcd) error {
	var o options
	if err := e.Job(&o); err != nil {
		return err
	}
	return serve(ctx, e.Client, o, e.Say)
}

func story(ctx context.Context, e *stage.Etcd) (err error) {
	s := newShow(ctx, e)
	defer func() { err = errors.Join(err, s.close()) }()
	e.Printf("Three replicas. The first to come leads, the others stand by in line.\n\n")
	for _, name := range names {
		if err := s.start(ctx, name); err != nil {
			return err
		}
		if err := s.inLine(ctx, name); err != nil {
			return err
		}
	}
	for _, act := range []func(context.Context) error{s.update, s.sick, s.stuck, s.crash} {
		if err := s.work(ctx); err != nil {
			return err
		}
		if err := act(ctx); err != nil {
			return err
		}
	}
	if err := s.work(ctx); err != nil {
		return err
	}
	e.Printf("\nThe end: everybody is told to stop.\n\n")
	if err := s.leave(ctx); err != nil {
		return err
	}
	e.Printf("\n")
	return s.report(ctx)
}

func (s *show) update(ctx context.Context) error {
	s.e.Printf("\nAn update: the leader gets SIGTERM. It stops its work, resigns and exits; a new process takes its place.\n\n")
	last, next, took, err := s.next(ctx, "SIGTERM", func(leader etcdlock.Leader) error { return s.terminate(leader.Value) })
	if err != nil {
		return err
	}
	s.e.Say("%s leads %v after the signal", next.Value, took)
	if err := s.start(ctx, last.Value); err != nil {
		return err
	}
	return s.inLine(ctx, last.Value)
}

func (s *show) sick(ctx context.Context) error {
	s.e.Printf("\nIll health: what the leader depends on fails, for it alone. It resigns, and stands again when it is well.\n\n")
	last, next, took, err := s.next(ctx, "ill health", func(leader etcdlock.Leader) error {
		s.clouds[leader.Value].setSick(true)
		return nil
	})
	if err != nil {
		return err
	}
	s.e.Say("%s leads %v after the failure; /healthz of %s says %d", next.Value, took, last.Value, s.health(ctx, last.Value))
	s.clouds[last.Value].setSick(false)
	return s.inLine(ctx, last.Value)
}

func (s *show) stuck(ctx context.Context) error {
	s.e.Printf("\nStuck: the leader waits for an answer and keeps its lease. An operator takes the lead from it (ForceRelease).\n\n")
	cloud := s.clouds[s.leader().Value]
	goOn := cloud.hang()
	if err := s.resize(ctx, s.desired+1); err != nil {
		return err
	}
	select {
	case <-cloud.arrived:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	last, next, took, err := s.next(ctx, "ForceRelease", func(leader etcdlock.Leader) error {
		return etcdlock.ForceRelease(ctx, s.e.Client, leader.Key, leader.Token)
	})
	if err != nil {
		return err
	}
	s.e.Say("%s leads %v after that, and does what %s did not", next.Value, took, last.Value)
	if err := s.reached(ctx); err != nil {
		return err
	}
	s.e.Say("only now %s gets its answer and goes on to write, as if it still led", last.Value)
	goOn()
	err = until(ctx, last.Value+" to be refused", func() (bool, error) {
		_, actual, err := readFleet(ctx, s.e.Client, s.e.Prefix)
		if err == nil && actual.By == last.Value {
			err = fmt.Errorf("%s has been deposed, and yet has written", last.Value)
		}
		return s.said(last.Value + " is refused"), err
	})
	if err != nil {
		return err
	}
	return s.inLine(ctx, last.Value)
}

func (s *show) crash(ctx context.Context) error {
	s.e.Printf("\nA crash: the leader gets SIGKILL. Nobody hears of it; its lease, TTL %v, has to run out.\n\n", ttl)
	_, next, took, err := s.next(ctx, "SIGKILL", func(leader etcdlock.Leader) error { return s.kill(leader.Value) })
	if err == nil {
		s.e.Say("%s leads %v after the crash", next.Value, took)
	}
	return err
}

// work gives the leader something to do and waits until it is done and everybody says who leads.
func (s *show) work(ctx context.Context) error {
	if err := s.resize(ctx, s.desired+2); err != nil {
		return err
	}
	if err := s.reached(ctx); err != nil {
		return err
	}
	leader := s.leader().Value
	if err := s.agree(ctx, leader); err != nil {
		return err
	}
	s.e.Say("the fleet has size %d; /leader of all %d replicas says %s", s.desired, len(s.replicas), leader)
	return nil
}

func (s *show) resize(ctx context.Context, size int) error {
	s.desired = size
	_, err := s.e.Client.Put(ctx, s.e.Prefix+"desired", strconv.Itoa(size))
	return err
}

func (s *show) reached(ctx context.Context) error {
	return until(ctx, fmt.Sprintf("a fleet of %d", s.desired), func() (bool, error) {
		_, actual, err := readFleet(ctx, s.e.Client, s.e.Prefix)
		return actual.Size == s.desired, err
	})
}
