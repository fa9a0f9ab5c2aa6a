package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

func newLs(c *connection) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:     "ls [PATTERN]",
		Aliases: []string{"list"},
		Short:   "List locks, with their holders and waiters",
		Long: `Ls lists every lock that is held or waited for, and every semaphore that has a size. With PATTERN it lists
those whose whole name matches: * stands for any text, slashes included, ? for a character, and [a-z] or
[!a-z] for one of a set. "In line for" counts from when the first holder joined the line, by its own clock,
and "first waits for" does the same for the first waiter.

With --prefix every key of etcd that has a slash counts as a place in a line. What PATTERN begins with, up to
its last slash before a wildcard, limits what is read.

It reads 500 holders and waiters in a request, all as of one moment, and prints when it has all.`,
		Example: `  etcdlock ls 'orders/*'
  etcdlock ls -o json | jq '.[] | select(.waiters > 0)'`,
		Args: mistakes(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := newGlob(strings.Join(append(args, "*")[:1], ""))
			if err != nil {
				return err
			}
			return c.list(cmd.Context(), cmd.OutOrStdout(), f.name, g)
		},
	}
	f.register(cmd, asTable, asWide, asJSON, asNames)
	return cmd
}

// list prints the locks that match.
func (c *connection) list(ctx context.Context, to io.Writer, format string, g glob) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer closeClient(client)
	out := bufio.NewWriter(to)
	list := newListing(out, format, time.Now())
	list.grid.colour = to == io.Writer(os.Stdout) && coloured(os.Stdout)
	found := false
	for q, err := range c.queuesBelow(ctx, client, g.literal) {
		if err != nil {
			return err
		}
		if !g.matches(q.Name) {
			continue
		}
		found = true
		if err := list.add(status.Summarize(q)); err != nil {
			return err
		}
	}
	if !found && format != asJSON {
		say("no lock is held or waited for in %s that matches", c.where())
	}
	if err := list.end(); err != nil {
		return err
	}
	return out.Flush()
}

// where names what the locks are in.
func (c *connection) where() string {
	if c.prefix {
		return "etcd"
	}
	return "namespace " + strconv.Quote(c.namespace)
}

// optionsBelow are those of every lock, and limit what is read to where names can begin with literal.
func (c *connection) optionsBelow(literal string) []etcdlock.Option {
	opts := c.options()
	if slash := strings.LastIndex(literal, "/"); c.prefix && slash > 0 {
		opts = append(opts, etcdlock.WithNamespace(literal[:slash]))
	}
	return opts
}

// queuesBelow yields the locks whose names begin with literal, and perhaps others. Etcd is waited for as long as a
// command may take, and again after each lock.
func (c *connection) queuesBelow(ctx context.Context, client *clientv3.Client, literal string) iter.Seq2[etcdlock.Queue, error] {
	opts := c.optionsBelow(literal)
	return func(yield func(etcdlock.Queue, error) bool) {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		limit := time.AfterFunc(c.command, func() { end(context.DeadlineExceeded) })
		defer limit.Stop()
		for q, err := range etcdlock.InspectAll(ctx, client, opts...) {
			limit.Stop() // printing does not count
			if !yield(q, err) {
				return
			}
			limit.Reset(c.command)
		}
	}
}

// listing prints one lock after the other.
type listing struct {
	to     io.Writer
	format string
	now    time.Time
	grid   grid
	any    bool // one was printed
}

func newListing(to io.Writer, format string, now time.Time) *listing {
	l := &listing{to: to, format: format, now: now, grid: grid{to: to}}
	l.grid.bold = func(_, column int, cell string) bool { return column == 3 && cell != "0" } // with waiters
	return l
}

func (l *listing) add(s status.Lock) error {
	first := !l.any
	l.any = true
	switch l.format {
	case asNames:
		_, err := io.WriteString(l.to, printable(s.Name)+"\n")
		return err
	case asJSON:
		return l.element(s, first)
	}
	if first {
		header := []string{"NAME", "KIND", "HOLDERS", "WAITERS", "FIRST HOLDER", "IN LINE FOR"}
		if l.format == asWide {
			header = append(header, "TOKEN", "LEASE", "FIRST WAITS FOR", "PREFIX")
		}
		if err := l.grid.add(header...); err != nil {
			return err
		}
	}
	row := []string{
		printable(s.Name), lockKind(s), strconv.Itoa(s.Holders), strconv.Itoa(s.Waiters), firstHolder(s), heldFor(s, l.now),
	}
	if l.format == asWide {
		token, lease := "-", "-"
		if s.First != nil {
			token, lease = strconv.FormatInt(s.First.Token, 10), s.First.Lease
		}
		row = append(row, token, lease, waiting(s, l.now), printable(s.Prefix))
	}
	return l.grid.add(row...)
}

// element prints one of an array.
func (l *listing) element(s status.Lock, first bool) error {
	var text bytes.Buffer
	text.WriteString(map[bool]string{true: "[\n  ", false: ",\n  "}[first])
	e := json.NewEncoder(&text)
	e.SetIndent("  ", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := l.to.Write(bytes.TrimRight(text.Bytes(), "\n"))
	return err
}

func (l *listing) end() error {
	switch {
	case l.format == asJSON && l.any:
		_, err := io.WriteString(l.to, "\n]\n")
		return err
	case l.format == asJSON:
		_, err := io.WriteString(l.to, "[]\n")
		return err
	}
	return l.grid.flush()
}
