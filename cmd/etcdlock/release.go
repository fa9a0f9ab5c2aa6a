package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/status"
)

func newRelease(c *connection) *cobra.Command {
	var r releaseFlags
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Take a lock away from its holder",
		Long: `Release removes the holder of the lock NAME from its queue: the next in line has the lock. It is for a
holder that hangs. A holder that is alive learns of the loss, but may go on until then. Only a guard in etcd
or the token refuses its late writes.

If there are several holders, or a waiter has to be removed, --token or --holder says which one; inspect
shows them. It asks before it removes anything, unless --yes is given. The exit code is 1 if the lock is
free.

With --ask it stands in line and waits until the holder releases the lock, as "etcdlock run --yield" does, and
a program that calls Hold.Wanted. The holder must have the lock exclusively, or be upgradeable. With --grace it removes a holder that has not done so by then.`,
		Args: mistakes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(cmd.Flags()); err != nil {
				return err
			}
			return c.release(cmd, args[0], r)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&r.token, "token", 0, "remove the place with this token")
	f.StringVar(&r.holder, "holder", "", "remove the place of `HOST[:PID]`")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask for a confirmation")
	f.BoolVar(&r.ask, "ask", false, "wait until the holder gives the lock up")
	f.Var(&r.grace, "grace", "with --ask, remove the holder after so long")
	return cmd
}

// releaseFlags say whom to remove, and how.
type releaseFlags struct {
	token    int64
	holder   string
	yes, ask bool
	grace    seconds
}

func (r *releaseFlags) check(f *pflag.FlagSet) error {
	switch {
	case r.token != 0 && r.holder != "":
		return mistakef("--token and --holder exclude each other")
	case f.Changed("grace") && !r.ask:
		return mistakef("--grace needs --ask")
	case f.Changed("grace") && r.grace.Duration == 0:
		return mistakef("--grace must be positive")
	}
	return nil
}

func (r *releaseFlags) fits(p etcdlock.Place) bool {
	switch {
	case r.token != 0:
		return int64(p.Token) == r.token
	case r.holder != "":
		return isHolder(p, r.holder)
	}
	return p.Holding
}

func isHolder(p etcdlock.Place, holder string) bool {
	return p.Owner.Host != "" && (holder == p.Owner.Host || holder == p.Owner.Host+":"+strconv.Itoa(p.Owner.PID))
}

// release removes the one place that fits.
func (c *connection) release(cmd *cobra.Command, name string, r releaseFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer closeClient(client)
	ctx, cancel := c.limited(cmd.Context())
	defer cancel()
	queue, err := etcdlock.Inspect(ctx, client, name, c.options()...)
	if err != nil {
		return err
	}
	var found []etcdlock.Place
	for _, p := range queue.Places {
		if r.fits(p) {
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
	only := status.Describe(etcdlock.Queue{Name: name, Holding: 1, Places: found})
	mayWrite := place.Kind == fairqueue.Exclusive.String() || place.Kind == fairqueue.Upgradeable.String()
	if r.ask && (!place.Holding || !mayWrite) {
		return mistakef("--ask is for the holder of an exclusive or upgradeable lock: no other holder looks for waiters; see etcdlock inspect")
	}
	if err := printQueue(os.Stderr, asWide, only, time.Now()); err != nil {
		return err
	}
	if r.ask && r.grace.Duration == 0 {
		return c.ask(cmd.Context(), client, queue, place, 0) // which harms nobody
	}
	if isRenewed(ctx, client, place.Lease) {
		say("its lease is being renewed, or was until a moment ago: a holder that lives goes on until it notices")
	}
	if !r.yes {
		if err := confirm("Remove it?"); err != nil {
			return err
		}
	}
	if r.ask {
		return c.ask(cmd.Context(), client, queue, place, r.grace.Duration)
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
