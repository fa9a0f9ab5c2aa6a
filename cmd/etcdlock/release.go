package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etcdlock/locks/etcdlock"
)

func newRelease(c *connection) *cobra.Command {
	var token int64
	var holder string
	var yes bool
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Take a lock away from its holder",
		Long: `Release removes the holder of the lock NAME from its queue: the next in line has the lock. It is for a
holder that is stuck. A holder that lives is told of the loss, but goes on until it notices, and only what is
guarded by etcd or by the token is safe from it.

If several hold it, or a waiter is to be removed, --token or --holder says which one; inspect shows them. It
asks before it does anything, unless --yes is given. The exit code is 1 if nobody holds the lock.`,
		Args: mistakes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if token != 0 && holder != "" {
				return mistakef("--token and --holder exclude each other")
			}
			return c.release(cmd, args[0], func(p etcdlock.Place) bool {
				switch {
				case token != 0:
					return int64(p.Token) == token
				case holder != "":
					return isHolder(p, holder)
				}
				return p.Holding
			}, yes)
		},
	}
	cmd.Flags().Int64Var(&token, "token", 0, "remove the place with this token")
	cmd.Flags().StringVar(&holder, "holder", "", "remove the place of `HOST[:PID]`")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func isHolder(p etcdlock.Place, holder string) bool {
	return p.Owner.Host != "" && (holder == p.Owner.Host || holder == p.Owner.Host+":"+strconv.Itoa(p.Owner.PID))
}

// release removes the one place that fits.
func (c *connection) release(cmd *cobra.Command, name string, fits func(etcdlock.Place) bool, yes bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := c.limited(cmd.Context())
	defer cancel()
	queue, err := etcdlock.Inspect(ctx, client, name, c.options()...)
	if err != nil {
		return err
	}
	var found []etcdlock.Place
	for _, p := range queue.Places {
		if fits(p) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return &exitError{code: exitFree, err: fmt.Errorf("nobody to remove from %q; see etcdlock inspect", name)}
	case 1:
	default:
		return mistakef("%d places of %q fit: say which one with --token; see etcdlock inspect", len(found), name)
	}
	place := found[0]
	only := describe(etcdlock.Queue{Name: name, Holding: 1, Places: found})
	if err := printQueue(os.Stderr, asWide, only, time.Now()); err != nil {
		return err
	}
	if isRenewed(ctx, client, place.Lease) {
		say("its lease is being renewed: the holder lives, and goes on until it notices")
	}
	if !yes {
		if err := confirm("Remove it?"); err != nil {
			return err
		}
	}
	ctx, cancel = c.limited(cmd.Context()) // the answer may have taken long
	defer cancel()
	return etcdlock.ForceRelease(ctx, client, place.Key, place.Token)
}

// confirm asks on the terminal.
func confirm(question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return mistakef("there is no terminal to ask on: give --yes")
	}
	fmt.Fprint(os.Stderr, question+" [y/N] ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &exitError{code: exitOther, err: fmt.Errorf("nothing was removed")}
}
