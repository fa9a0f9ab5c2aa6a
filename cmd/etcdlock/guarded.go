package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/child"
	"github.com/etcdlock/locks/etcdlock"
)

// look is how often the clock is compared with the end of the trust in a lease. Timers do not run while the
// machine is suspended.
const look = 250 * time.Millisecond

// run takes the lock and runs the command.
func (r *lockFlags) run(ctx context.Context, c *connection, name string, argv []string) error {
	path, err := find(argv)
	if err != nil {
		return err // before etcd is asked for anything
	}
	child.Adopt()
	var runner child.Runner
	ctx, stop := forward(ctx, &runner, r.stopTimeout.Duration) // before the lock is asked for
	defer stop()

	src, err := r.connect(ctx, c)
	if err != nil {
		return err
	}
	defer src.close(c.command)
	queues := c.queues(append([]string{name}, r.also...)...)
	if err := refuseNested(ctx, src.Client, src.above, queues); err != nil {
		return orCause(ctx, err)
	}
	a, err := r.acquirer(c, src.keeper, name)
	if err != nil {
		return err
	}
	hold, err := r.acquire(underSurrounding(ctx, src.above), a, c, src, name)
	if err != nil {
		return err
	}
	work := &guarded{protection: &r.protection, runner: &runner, hold: hold, name: name, argv: argv, path: path}
	if r.yield {
		work.wanted = wanted(ctx, hold, name)
	}
	if len(argv) == 0 {
		fmt.Println(hold.Key())
		select {
		case <-ctx.Done():
		case <-hold.Done():
		case <-work.wanted:
		}
		return work.release(c.command, nil)
	}
	env, err := environment(hold, src.lease(ctx), src.above, surroundingOf(hold, name, queues))
	if err == nil {
		err = work.do(hold.Context(), env)
	}
	return work.release(c.command, err)
}

// find returns the path of the program.
func find(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", nil
	}
	path, err := exec.LookPath(argv[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil // asked for by a PATH that has the current directory
	}
	return path, notStarted(err)
}

// forward passes signals on to the commands of runner. The context that it returns ends with the first signal that
// asks this process to end.
func forward(ctx context.Context, runner *child.Runner, limit time.Duration) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 16)
	child.Catch(caught)
	go func() {
		for s := range caught {
			sig, ok := s.(syscall.Signal)
			switch {
			case !ok:
			case child.Suspends(sig):
				say("not suspended: the lock would be lost")
			case child.Resumes(sig):
				runner.Resume()
			case runner.Forward(sig, signalled{sig}, limit):
				end(signalled{sig})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		close(caught)
		end(nil)
	}
}

// orCause returns why ctx has ended, if it has, or err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// guarded is a command that runs under a hold.
type guarded struct {
	*protection
	runner     *child.Runner
	hold       *etcdlock.Hold
	name, path string
	argv       []string
	wanted     <-chan struct{} // closed when the command is to end for somebody else; nil if that is not asked for
	said       atomic.Bool     // that the lock is lost
}

// errYield is why no command is started any more when another client waits.
var errYield = errors.New("somebody waits for the lock")

// wanted returns a channel that is closed when another client stands in line. What it starts ends with ctx or hold.
func wanted(ctx context.Context, hold *etcdlock.Hold, name string) <-chan struct{} {
	seen := make(chan struct{})
	go func() {
		switch err := hold.Wanted(ctx); {
		case err == nil:
			close(seen)
		case ctx.Err() == nil && hold.Err() == nil:
			say("not known whether somebody waits for %q: %v", name, err)
		}
	}()
	return seen
}

// do runs the command until its group has ended, and ends it when lease has ended. The error is that of the start,
// or has the exit code.
func (g *guarded) do(lease context.Context, env []string) error {
	c, err := g.runner.Start(child.Spec{
		Path: g.path, Args: g.argv, Env: env,
		Left: func(others []int) {
			if g.said.Load() && g.onLost == lostKill {
				return // they are being killed, and the lock is not held
			}
			say("%s has ended, but not %s; the lock is held until they have", title(g.argv), processes(others))
		},
		Resumed: func() { say("not suspended: the lock would be lost") },
	}, g.hold.Err)
	switch {
	case errors.As(err, new(*fs.PathError)):
		return notStarted(err)
	case err != nil:
		return err
	}
	// The loss comes after the start, or the start would have seen it.
	detach := context.AfterFunc(lease, func() { g.lost(context.Cause(lease)) })
	defer detach()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-c.Done():
			if code := c.Wait().ExitCode(); code != 0 {
				return &exitError{code: code}
			}
			return nil
		case <-g.wanted:
			g.wanted = nil
			say("%v %q, ending %s", errYield, g.name, title(g.argv))
			g.runner.Forward(syscall.SIGTERM, errYield, g.stopTimeout.Duration)
		case <-ticker.C:
			_ = g.hold.Err() // which ends its context
		}
	}
}

// lost ends the command before another owner can have the lock.
func (g *guarded) lost(why error) {
	if errors.As(why, new(signalled)) {
		return // the command has got the signal
	}
	g.said.Store(true)
	if g.onLost == lostWarn {
		say("lost %q, and the command goes on: %v", g.name, why)
		return
	}
	// After a suspension of this process there may be nothing left.
	left := max(0, min(g.grace.Duration, g.grace.Duration+time.Until(g.hold.Deadline())))
	say("lost %q, ending %s, killing it in %v: %v", g.name, title(g.argv), rounded(left), why)
	g.runner.Stop(left)
}

// release gives the lock back, and returns how the tool ends: result, unless the lock had been lost.
func (g *guarded) release(limit time.Duration, result error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := g.hold.Unlock(ctx)
	switch {
	case errors.Is(err, etcdlock.ErrLost), errors.Is(err, etcdlock.ErrClosed):
		if g.said.Load() {
			return &exitError{code: exitLost}
		}
		return &exitError{code: exitLost, err: fmt.Errorf("lost %q: %w", g.name, err)}
	case err != nil:
		say("%q was not given back, and is free in %v at the latest: %v", g.name, g.ttl.Duration, err)
	}
	return result
}

func processes(pids []int) string {
	const most = 5
	text := strings.Trim(fmt.Sprint(pids[:min(most, len(pids))]), "[]")
	if len(pids) > most {
		text += " …"
	}
	if len(pids) == 1 {
		return "its process " + text
	}
	return fmt.Sprintf("%d of its processes (%s)", len(pids), text)
}
