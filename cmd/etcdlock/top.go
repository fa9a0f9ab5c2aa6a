package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

func newTop(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "top [PATTERN]",
		Short: "Watch all locks on the terminal",
		Long: `Top shows every lock that ls lists, and what happens to them, at most four times a second. The locks with
the most waiters come first; s sorts them in another way, / shows only those whose names have a text. Enter
shows all holders and waiters of a lock with their leases; there r releases one, after two questions.

One watch gets the events of the whole namespace, so run few of these at a time. If etcd does not answer, a
line says so, and the last state stays on the screen.`,
		Args: mistakes(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
				return mistakef("top needs a terminal; see etcdlock ls")
			}
			g, err := globOf(args)
			if err != nil {
				return err
			}
			return c.top(cmd.Context(), g)
		},
	}
}

func (c *connection) top(ctx context.Context, g glob) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer closeClient(client)
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	f := newFeed()
	running.Go(func() { f.follow(ctx, client, g, c.optionsBelow(g.literal)) })
	running.Go(func() { probe(ctx, client, c.probeKey(g), f.answered) })
	m := newTopModel(f, &actions{ctx: ctx, connection: c, client: client}, c.where())
	_, err = tea.NewProgram(m, tea.WithContext(ctx)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return signalled{syscall.SIGINT}
	}
	return err
}

// probeKey is one that a user with read permission for the locks can read.
func (c *connection) probeKey(g glob) string {
	if !c.prefix {
		return c.namespace + "/"
	}
	return g.literal[:strings.LastIndex(g.literal, "/")+1] + "\x00"
}

// actions are the requests of a top.
type actions struct {
	ctx        context.Context //nolint:containedctx // that of the command
	connection *connection
	client     *clientv3.Client
}

// inspect reads the queue at a prefix, which may be one that no name leads to.
func (a *actions) inspect(prefix string) (status.Queue, error) {
	ctx, cancel := a.connection.limited(a.ctx)
	defer cancel()
	q, err := etcdlock.Inspect(ctx, a.client, strings.TrimSuffix(prefix, "/"), etcdlock.AtPrefix())
	return status.Describe(q), err
}

func (a *actions) release(p status.Place) error {
	ctx, cancel := a.connection.limited(a.ctx)
	defer cancel()
	err := etcdlock.ForceRelease(ctx, a.client, p.Key, etcdlock.Token(p.Token))
	if errors.Is(err, etcdlock.ErrStale) {
		return fmt.Errorf("it had gone already: %w", err)
	}
	return err
}
