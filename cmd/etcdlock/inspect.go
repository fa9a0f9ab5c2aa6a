package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

// exitFree is that of inspect -q and release for a lock that nobody holds.
const exitFree = 1

func newInspect(c *connection) *cobra.Command {
	var f format
	var quiet bool
	cmd := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show the holders of a lock, and its waiters",
		Long: `Inspect shows the holders of the lock NAME and those that wait for it, in order. It works for every kind of
lock, and with --prefix for those of etcdctl. "In line for" counts from when a holder joined the line, by its
own clock.

With --quiet it prints nothing, and the exit code is 0 if the lock is held and 1 if it is free.`,
		Args: mistakes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := c.inspect(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case quiet && q.Holding == 0:
				return &exitError{code: exitFree}
			case quiet:
				return nil
			}
			return printQueue(cmd.OutOrStdout(), f.name, status.Describe(q), time.Now())
		},
	}
	f.register(cmd, asTable, asWide, asJSON, asNames)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing: exit code 0 if it is held, 1 if it is free")
	return cmd
}

func (c *connection) inspect(ctx context.Context, name string) (etcdlock.Queue, error) {
	client, err := c.client()
	if err != nil {
		return etcdlock.Queue{}, err
	}
	defer closeClient(client)
	ctx, cancel := c.limited(ctx)
	defer cancel()
	return etcdlock.Inspect(ctx, client, name, c.options()...)
}

func printQueue(to io.Writer, format string, q status.Queue, now time.Time) error {
	switch format {
	case asJSON:
		return printJSON(to, q)
	case asNames:
		var keys []string
		for _, p := range placesOf(q) {
			keys = append(keys, p.Key)
		}
		return printNames(to, keys)
	}
	if len(q.Holders)+len(q.Waiters) == 0 {
		return printTable(to, [][]string{{printable(q.Name) + " is free"}})
	}
	return printTable(to, rowsOf(q, format == asWide, now))
}

// rowsOf are a table of the holders and waiters, with its header.
func rowsOf(q status.Queue, wide bool, now time.Time) [][]string {
	rows := [][]string{{"STATE", "KIND", "OWNER", "IN LINE FOR", "TOKEN"}}
	if wide {
		rows[0] = append(rows[0], "LEASE", "TTL", "KEY")
	}
	for i, p := range placesOf(q) {
		state := "waits"
		if i < len(q.Holders) {
			state = "holds"
		}
		row := []string{state, kindOf(p), ownerOf(p), since(p.Since, now), strconv.FormatInt(p.Token, 10)}
		if wide {
			row = append(row, p.Lease, fmt.Sprintf("%ds", p.TTL), printable(p.Key))
		}
		rows = append(rows, row)
	}
	return rows
}

// placesOf are the holders and the waiters.
func placesOf(q status.Queue) []status.Place { return slices.Concat(q.Holders, q.Waiters) }

func kindOf(p status.Place) string {
	switch {
	case p.Weight > 1:
		return fmt.Sprintf("%s ×%d", p.Kind, p.Weight)
	case p.Priority > 0:
		return fmt.Sprintf("%s, priority %d", p.Kind, p.Priority)
	}
	return p.Kind
}

// ownerOf describes the holder or waiter.
func ownerOf(p status.Place) string {
	if p.Host == "" {
		return printable(p.Value)
	}
	text := fmt.Sprintf("%s:%d %s", printable(p.Host), p.PID, printable(p.Program))
	if p.Label != "" {
		text += " " + printable(p.Label)
	}
	return text
}

// since is for how long something has been so.
func since(begin, now time.Time) string {
	if begin.IsZero() {
		return "?"
	}
	return rounded(max(0, now.Sub(begin))).String()
}

// isRenewed reports whether the owner of a lease seems to renew it: that is done when a third of it is over.
func isRenewed(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) bool {
	answer, err := client.TimeToLive(ctx, lease)
	return err == nil && answer.TTL > answer.GrantedTTL/2
}
