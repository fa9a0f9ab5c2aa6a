package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/child"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// electFlags describe the candidate.
type electFlags struct {
	protection
	id       string
	listen   bool
	output   format
	health   string
	every    seconds
	http     string
	priority int

	leads, sick atomic.Bool // a command runs here; the last health check failed
}

func newElect(c *connection) *cobra.Command {
	e := &electFlags{}
	cmd := &cobra.Command{
		Use:   "elect [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command on whichever machine is the leader",
		Long: `Elect is a candidate in the election NAME, and runs COMMAND while it leads. When the leadership is lost, or
the health check fails, it ends COMMAND as "etcdlock run" does, and is a candidate again: each term starts
COMMAND anew. When COMMAND ends by itself, elect resigns and ends with COMMAND's exit code. Flags after NAME
are COMMAND's. Without COMMAND it prints the key of each term and leads until a signal.

With --listen it is no candidate and prints the leaders' values, a line for each change, until a signal; an
empty line is a vacancy.

With --http it serves /healthz, and at / the leader as JSON: {"name": ..., "key": ..., "token": ..., "self": ...}.`,
		Example: `  etcdlock elect --id "$(hostname)" scheduler -- /usr/bin/scheduler
  etcdlock elect --listen scheduler`,
		Args: mistakes(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(cmd.Flags()); err != nil {
				return err
			}
			argv, err := commandLine(args[1:], "")
			if err != nil {
				return err
			}
			if e.listen {
				return e.follow(cmd.Context(), c, args[0], argv)
			}
			return e.run(cmd.Context(), c, args[0], argv)
		},
	}
	e.register(cmd)
	return cmd
}

func (e *electFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SetInterspersed(false)
	e.protection.register(f)
	e.output.register(cmd, asNames, asJSON)
	host, _ := os.Hostname()
	e.every.Duration = 5 * time.Second
	f.StringVar(&e.id, "id", host, "value that others see as the leader")
	f.BoolVarP(&e.listen, "listen", "l", false, "print the leaders instead of being one")
	f.BoolVar(&e.listen, "observe", false, "the same as --listen")
	f.StringVar(&e.health, "health", "", "health check, a `line` for /bin/sh: the leadership ends when it fails")
	f.Var(&e.every, "every", "how often to run the health check, and its limit")
	f.StringVar(&e.http, "http", "", "`address` to serve the leader's name at")
	f.IntVar(&e.priority, "priority", 0, "preferred to candidates with a lower one when nobody leads")
}

func (e *electFlags) check(f *pflag.FlagSet) error {
	if err := e.protection.check(f); err != nil {
		return err
	}
	switch {
	case e.priority < 0:
		return mistakef("--priority must not be negative")
	case e.every.Duration <= 0:
		return mistakef("--every must be positive")
	}
	return nil
}

// follow prints the leaders until a signal.
func (e *electFlags) follow(ctx context.Context, c *connection, name string, argv []string) error {
	if len(argv) > 0 {
		return mistakef("--listen takes no command")
	}
	ctx, stop := forward(ctx, new(child.Runner), 0)
	defer stop()
	client, err := c.client()
	if err != nil {
		return err
	}
	defer closeClient(client)
	for leader, err := range etcdlock.NewElection(session.Keep(client), name, c.options()...).Observe(ctx) {
		switch {
		case err != nil:
			return orCause(ctx, err)
		case e.output.name == asJSON:
			err = printJSON(os.Stdout, leaderOf(leader, ""))
		default:
			_, err = fmt.Println(printable(leader.Value))
		}
		if err != nil {
			return err
		}
	}
	return nil // a signal is the way to end it
}

// run campaigns, and runs the command in each term.
func (e *electFlags) run(ctx context.Context, c *connection, name string, argv []string) error {
	path, err := find(argv)
	if err != nil {
		return err
	}
	child.Adopt()
	var runner child.Runner
	ctx, stop := forward(ctx, &runner, e.stopTimeout.Duration)
	defer stop()
	src, err := e.connect(ctx, c)
	if err != nil {
		return err
	}
	defer src.close(c.command)
	if err := refuseNested(ctx, src.Client, src.above, c.queues(name)); err != nil {
		return orCause(ctx, err)
	}
	election := etcdlock.NewElection(src.keeper, name, e.options(c)...)
	page := &leaderPage{id: e.id}
	if e.http != "" {
		finish, err := page.serve(ctx, e.http, election)
		if err != nil {
			return err
		}
		defer finish()
	}
	led := false
	err = election.Run(ctx, e.id, func(term context.Context, t *etcdlock.Term) error {
		led = true
		e.leads.Store(true)
		defer e.leads.Store(false)
		page.term.Store(t)
		defer page.term.Store(nil)
		if e.verbose {
			say("leading %q, token %d", name, t.Token())
		}
		if len(argv) == 0 {
			fmt.Println(t.Key())
			<-term.Done()
			return nil
		}
		env, err := environment(t.Hold, src.lease(term), src.above, surroundingOf(t.Hold, name, c.queues(name)))
		if err != nil {
			return err
		}
		work := &guarded{protection: &e.protection, runner: &runner, hold: t.Hold, name: name, argv: argv, path: path}
		err = work.do(term, env)
		if err == nil {
			err = &exitError{code: 0} // which ends the election
		}
		return err
	})
	if len(argv) == 0 && errors.As(err, new(signalled)) && led {
		return nil
	}
	return err
}

func (e *electFlags) options(c *connection) []etcdlock.Option {
	opts := append(c.options(), etcdlock.WithPriority(e.priority))
	if e.label != "" {
		opts = append(opts, etcdlock.WithLabel(e.label))
	}
	if e.health != "" {
		opts = append(opts, etcdlock.WithHealthCheck(e.every.Duration, e.healthy))
	}
	return opts
}

// healthy runs the health check, and kills it when ctx ends. A candidate that does not stand for a failure says so once.
func (e *electFlags) healthy(ctx context.Context) error {
	c, err := child.Start(child.Spec{Path: "/bin/sh", Args: []string{"sh", "-c", e.health}, Env: os.Environ(), Background: true})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.Kill)()
	code := c.Wait().ExitCode()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the health check has not returned within %v", e.every.Duration)
	case code != 0:
		err = fmt.Errorf("the health check returned %d", code)
	}
	stopped := errors.Is(ctx.Err(), context.Canceled)
	if before := e.sick.Swap(err != nil); err != nil && !before && !e.leads.Load() && !stopped {
		say("%v: no candidate until it returns 0", err)
	}
	return err
}
