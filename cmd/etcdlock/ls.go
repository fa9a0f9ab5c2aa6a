package main

import (
	"context"
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
			g, err := globOf(args)
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
	locks := []status.Lock{} // not nil, which JSON has as null
	for q, err := range c.queuesBelow(ctx, client, g.literal) {
		if err != nil {
			return err
		}
		if g.matches(q.Name) {
			locks = append(locks, status.Summarize(q))
		}
	}
	if len(locks) == 0 && format != asJSON {
		say("no lock is held or waited for in %s that matches", c.where())
	}
	return printLocks(to, format, locks, time.Now(), to == io.Writer(os.Stdout) && coloured(os.Stdout))
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

// queuesBelow yields the locks whose names begin with literal, and perhaps others, when all of them have been read.
func (c *connection) queuesBelow(ctx context.Context, client *clientv3.Client, literal string) iter.Seq2[etcdlock.Queue, error] {
	return func(yield func(etcdlock.Queue, error) bool) {
		ctx, cancel := c.limited(ctx)
		defer cancel()
		etcdlock.InspectAll(ctx, client, c.optionsBelow(literal)...)(yield)
	}
}

func printLocks(to io.Writer, format string, locks []status.Lock, now time.Time, colour bool) error {
	switch format {
	case asJSON:
		return printJSON(to, locks)
	case asNames:
		var names []string
		for _, l := range locks {
			names = append(names, printable(l.Name))
		}
		return printNames(to, names)
	}
	if len(locks) == 0 {
		return nil
	}
	header := []string{"NAME", "KIND", "HOLDERS", "WAITERS", "FIRST HOLDER", "IN LINE FOR"}
	if format == asWide {
		header = append(header, "TOKEN", "LEASE", "FIRST WAITS FOR", "PREFIX")
	}
	rows := [][]string{header}
	for _, l := range locks {
		rows = append(rows, lockRow(l, format == asWide, now))
	}
	_, err := io.WriteString(to, aligned(rows, func(row, column int) bool {
		return colour && (row == 0 || header[column] == "WAITERS" && rows[row][column] != "0")
	}))
	return err
}

func lockRow(l status.Lock, wide bool, now time.Time) []string {
	row := []string{
		printable(l.Name), lockKind(l), strconv.Itoa(l.Holders), strconv.Itoa(l.Waiters), firstHolder(l), heldFor(l, now),
	}
	if !wide {
		return row
	}
	token, lease := "-", "-"
	if l.First != nil {
		token, lease = strconv.FormatInt(l.First.Token, 10), l.First.Lease
	}
	return append(row, token, lease, waiting(l, now), printable(l.Prefix))
}
