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
)

// exitFree is that of inspect -q and release for a lock that nobody holds.
const exitFree = 1

// queueJSON is what "inspect -o json" prints. Fields are added, and keep their meaning.
type queueJSON struct {
	Name    string      `json:"name"`
	Prefix  string      `json:"prefix"`         // of the queue's keys in etcd
	Size    int64       `json:"size,omitempty"` // of a semaphore
	Holders []placeJSON `json:"holders"`        // in the order in which they came
	Waiters []placeJSON `json:"waiters"`        // in line
}

// placeJSON is a holder or a waiter.
type placeJSON struct {
	Key      string    `json:"key"`
	Token    int64     `json:"token"`
	Kind     string    `json:"kind"` // exclusive, shared, permit or candidate
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Program  string    `json:"program,omitempty"`
	Label    string    `json:"label,omitempty"`
	Since    time.Time `json:"since,omitzero"`     // when it joined the line, by its own clock
	Value    string    `json:"value,omitempty"`    // of a candidate, and of another program's key
	Weight   int64     `json:"weight,omitempty"`   // permits
	Priority int       `json:"priority,omitempty"` // of a candidate
	Lease    string    `json:"lease"`              // hexadecimal, as etcdctl prints it
	TTL      int64     `json:"ttl"`                // seconds until the lease ends without being renewed; 0: not known
}

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
			return printQueue(cmd.OutOrStdout(), f.name, describe(q), time.Now())
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

func describe(q etcdlock.Queue) queueJSON {
	d := queueJSON{Name: q.Name, Prefix: q.Prefix, Size: q.Size, Holders: []placeJSON{}, Waiters: []placeJSON{}}
	for _, p := range q.Places {
		place := describePlace(p)
		if p.Holding {
			d.Holders = append(d.Holders, place)
		} else {
			d.Waiters = append(d.Waiters, place)
		}
	}
	return d
}

func describePlace(p etcdlock.Place) placeJSON {
	place := placeJSON{
		Key: p.Key, Token: int64(p.Token), Kind: p.Kind, Host: p.Owner.Host, PID: p.Owner.PID,
		Program: p.Owner.Program, Label: p.Owner.Label, Since: p.Owner.Since, Value: p.Value, Weight: p.Weight,
		Priority: p.Priority, Lease: fmt.Sprintf("%x", int64(p.Lease)), TTL: int64(p.TTL / time.Second),
	}
	if place.Host != "" {
		place.Value = "" // which is where the owner stands
	}
	return place
}

func printQueue(to io.Writer, format string, q queueJSON, now time.Time) error {
	switch format {
	case asJSON:
		return printJSON(to, q)
	case asNames:
		var rows [][]string
		for _, p := range q.places() {
			rows = append(rows, []string{p.Key})
		}
		return printTable(to, rows)
	}
	if len(q.Holders)+len(q.Waiters) == 0 {
		return printTable(to, [][]string{{printable(q.Name) + " is free"}})
	}
	return printTable(to, q.rows(format == asWide, now))
}

// rows are a table of the holders and waiters, with its header.
func (q queueJSON) rows(wide bool, now time.Time) [][]string {
	rows := [][]string{{"STATE", "KIND", "OWNER", "IN LINE FOR", "TOKEN"}}
	if wide {
		rows[0] = append(rows[0], "LEASE", "TTL", "KEY")
	}
	for i, p := range q.places() {
		state := "waits"
		if i < len(q.Holders) {
			state = "holds"
		}
		row := []string{state, p.kind(), p.owner(), p.inLine(now), strconv.FormatInt(p.Token, 10)}
		if wide {
			row = append(row, p.Lease, fmt.Sprintf("%ds", p.TTL), printable(p.Key))
		}
		rows = append(rows, row)
	}
	return rows
}

// places are the holders and the waiters.
func (q queueJSON) places() []placeJSON { return slices.Concat(q.Holders, q.Waiters) }

func (p placeJSON) kind() string {
	switch {
	case p.Weight > 1:
		return fmt.Sprintf("%s ×%d", p.Kind, p.Weight)
	case p.Priority > 0:
		return fmt.Sprintf("%s, priority %d", p.Kind, p.Priority)
	}
	return p.Kind
}

// owner describes the holder or waiter.
func (p placeJSON) owner() string {
	if p.Host == "" {
		return printable(p.Value)
	}
	text := fmt.Sprintf("%s:%d %s", printable(p.Host), p.PID, printable(p.Program))
	if p.Label != "" {
		text += " " + printable(p.Label)
	}
	return text
}

func (p placeJSON) inLine(now time.Time) string { return since(p.Since, now) }

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
