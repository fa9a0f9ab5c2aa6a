package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/waits"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

// exitDeadlock is that of deadlocks if it has found one.
const exitDeadlock = 1

const aboutWaits = `A holder waits for the locks that are asked for under its own. A ticket says so if the program passes the context of
the hold on to the calls under it, or is a command under run. Of other programs only the session is known: then a
circle is possible, but any of the session's holders may be the one that waits. The locks that package coord takes for its
shards and its Once are not among those that are read: a circle through one of them is not seen.`

func newWaitGraph(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "wait-graph",
		Short: "Draw which holders and waiters wait for which",
		Long: `Wait-graph prints, as a graph for DOT, what holders and waiters of all locks wait for, as of one moment. What
is certain is drawn with a solid line. Holders that wait for nothing and that nothing waits for are left out.

` + aboutWaits,
		Example: "  etcdlock wait-graph | dot -Tsvg > waits.svg",
		Args:    mistakes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, err := c.waits(cmd.Context())
			if err != nil {
				return err
			}
			return drawWaits(cmd.OutOrStdout(), g.Edges())
		},
	}
}

func newDeadlocks(c *connection) *cobra.Command {
	var f format
	var lines bool
	cmd := &cobra.Command{
		Use:   "deadlocks",
		Short: "Find holders and waiters that wait for each other",
		Long: `Deadlocks prints each circle of holders and waiters that wait for each other: none goes on unless one of them
gives up. It reads all locks twice, and prints the circles that it has seen both times. With --lines it also prints
the whole line of each lock in the circle.

` + aboutWaits + `

The exit code is 1 if there is a deadlock, and 0 if there is none, or if it is only possible.`,
		Args: mistakes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, queues, err := c.deadlocks(cmd.Context())
			if err != nil {
				return err
			}
			if !lines {
				queues = nil
			}
			if err := printDeadlocks(cmd.OutOrStdout(), f.name, found, queues); err != nil {
				return err
			}
			for _, d := range found {
				if d.Certain {
					return &exitError{code: exitDeadlock}
				}
			}
			return nil
		},
	}
	f.register(cmd, asTable, asJSON)
	cmd.Flags().BoolVar(&lines, "lines", false, "print the whole line of each lock as well")
	return cmd
}

// waits reads the graph of all locks.
func (c *connection) waits(ctx context.Context) (*waits.Graph, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	defer closeClient(client)
	queues, err := c.allQueues(ctx, client)
	return waits.New(queues), err
}

func (c *connection) allQueues(ctx context.Context, client *clientv3.Client) (all []etcdlock.Queue, err error) {
	for q, err := range c.queuesBelow(ctx, client, "") {
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

// deadlocks returns the circles that two looks have in common, and the queues of the second one.
func (c *connection) deadlocks(ctx context.Context) (found []waits.Cycle, queues []etcdlock.Queue, err error) {
	client, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	defer closeClient(client)
	first, err := c.allQueues(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	cycles := waits.New(first).Cycles()
	if len(cycles) == 0 {
		return nil, nil, nil
	}
	if queues, err = c.allQueues(ctx, client); err != nil {
		return nil, nil, err
	}
	second := waits.New(queues)
	for _, cycle := range cycles {
		if second.Has(cycle) {
			found = append(found, cycle)
		}
	}
	return found, queues, nil
}

// deadlock is a circle as JSON: each place waits for the next one, and the last one for the first. Fields are added, and
// keep their meaning.
type deadlock struct {
	Certain bool            `json:"certain"`
	Places  []deadlockPlace `json:"places"`
}

type deadlockPlace struct {
	Name  string `json:"name"` // of the lock
	Holds bool   `json:"holds"`
	status.Place
}

func printDeadlocks(to io.Writer, format string, found []waits.Cycle, queues []etcdlock.Queue) error {
	if format == asJSON {
		all := []deadlock{}
		for _, c := range found {
			d := deadlock{Certain: c.Certain}
			for _, n := range c.Nodes {
				d.Places = append(d.Places, deadlockPlace{n.Name, n.Place.Holding, placeOf(n)})
			}
			all = append(all, d)
		}
		return printJSON(to, all)
	}
	if len(found) == 0 {
		say("no deadlock is seen")
	}
	now := time.Now()
	for _, c := range found {
		title := "deadlock"
		if !c.Certain {
			title = "possible deadlock"
		}
		if _, err := fmt.Fprintln(to, title+":"); err != nil {
			return err
		}
		var rows [][]string
		for _, n := range c.Nodes {
			verb := "waits for"
			if n.Place.Holding {
				verb = "holds"
			}
			p := placeOf(n)
			rows = append(rows, []string{
				"  " + ownerOf(p), verb, printable(n.Name), "in line for " + since(p.Since, now), "token " + strconv.FormatInt(p.Token, 10),
			})
		}
		if err := printTable(to, rows); err != nil {
			return err
		}
		if err := printLines(to, c, queues, now); err != nil {
			return err
		}
	}
	return nil
}

// printLines prints those of queues that a circle goes through.
func printLines(to io.Writer, c waits.Cycle, queues []etcdlock.Queue, now time.Time) error {
	for _, q := range queues {
		for _, n := range c.Nodes {
			if n.Name != q.Name {
				continue
			}
			if _, err := fmt.Fprintf(to, "\nthe line of %s:\n", printable(q.Name)); err != nil {
				return err
			}
			if err := printTable(to, rowsOf(status.Describe(q), true, now)); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

func placeOf(n waits.Node) status.Place {
	q := status.Describe(etcdlock.Queue{Places: []etcdlock.Place{n.Place}})
	return append(q.Holders, q.Waiters...)[0]
}

// drawWaits prints a graph in the language of DOT.
func drawWaits(to io.Writer, edges []waits.Edge) error {
	var text strings.Builder
	text.WriteString("digraph waits {\n  node [shape=box];\n")
	known := make(map[string]bool)
	node := func(n waits.Node) string {
		name := strconv.Quote(fmt.Sprintf("%s@%d", n.Place.Key, n.Place.Token))
		if !known[name] {
			known[name] = true
			style := ", style=dashed"
			verb := "waits for"
			if n.Place.Holding {
				style, verb = "", "holds"
			}
			fmt.Fprintf(&text, "  %s [label=%s%s];\n", name, strconv.Quote(ownerOf(placeOf(n))+"\n"+verb+" "+printable(n.Name)), style)
		}
		return name
	}
	for _, e := range edges {
		from, to := node(e.From), node(e.To)
		style := ""
		if !e.Certain {
			style = " [style=dotted]"
		}
		fmt.Fprintf(&text, "  %s -> %s%s;\n", from, to, style)
	}
	text.WriteString("}\n")
	_, err := io.WriteString(to, text.String())
	return err
}
