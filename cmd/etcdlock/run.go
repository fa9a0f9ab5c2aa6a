package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// spare is how long before the lease can end a command that lost its lock is dead.
	spare = 500 * time.Millisecond

	// leastTTL leaves room for spare, which must be less than half of it.
	leastTTL = 2 * time.Second

	defaultTTL   = 20 * time.Second
	defaultGrace = 5 * time.Second
)

const (
	lostKill = "kill"
	lostWarn = "warn"
)

// protection is what run and elect have in common: how long the lease lives, and what happens to a command.
type protection struct {
	ttl, grace, stopTimeout seconds
	onLost                  string
	label                   string
	verbose                 bool
}

func (p *protection) register(f *pflag.FlagSet) {
	p.ttl.Duration = defaultTTL
	p.grace.Duration = defaultGrace
	f.Var(&p.ttl, "ttl", "how long the lock stays after a crash of this machine, 2s at least")
	f.Var(&p.grace, "grace", "time between SIGTERM and SIGKILL when the lock is lost; ttl/2 - 1s at most")
	f.Var(&p.stopTimeout, "stop-timeout", "kill the command so long after a signal that asks it to end (0: never)")
	f.StringVar(&p.onLost, "on-lost", lostKill, "what to do with the command when the lock is lost: kill or warn")
	f.StringVar(&p.label, "label", "", "text for people who look at the lock")
	f.BoolVar(&p.verbose, "verbose", false, "say how long the lock took, or what holds it")
}

// check requires that f has been parsed.
func (p *protection) check(f *pflag.FlagSet) error {
	if p.ttl.Duration < leastTTL {
		return mistakef("--ttl %v: at least %v are needed", p.ttl.Duration, leastTTL)
	}
	most := p.ttl.Duration/2 - time.Second
	if !f.Changed("grace") {
		p.grace.Duration = min(p.grace.Duration, most)
	}
	if p.grace.Duration > most {
		return mistakef("--grace %v is too long for --ttl %v: at most ttl/2 - 1s = %v", p.grace.Duration, p.ttl.Duration, most)
	}
	if p.onLost != lostKill && p.onLost != lostWarn {
		return mistakef("--on-lost %q: kill or warn", p.onLost)
	}
	return nil
}

// lockFlags say which lock to take, and for how long to wait.
type lockFlags struct {
	protection
	nonblock, shared bool
	yield            bool
	wait             seconds
	waits            bool // wait was given
	conflict         int
	line             string
	limit, permits   int64
	slots            bool
	also             []string
	minHold, once    seconds
}

func newRun(c *connection) *cobra.Command {
	r := &lockFlags{}
	cmd := &cobra.Command{
		Use:     "run [flags] NAME [--] COMMAND [ARG...]",
		Aliases: []string{"lock"},
		Short:   "Run a command under a lock",
		Long: `Run takes the lock NAME, runs COMMAND and releases the lock when COMMAND and all processes of its group
have ended. Flags after NAME are COMMAND's. Without COMMAND it prints the key of the lock and holds it until
a signal. Signals are passed on to the group. A daemon that COMMAND starts keeps the lock, unless it leaves
the group, as by setsid. On Linux COMMAND dies with etcdlock, even if that is killed. Processes that COMMAND
has started may live on.

When the lock is lost, COMMAND's process group gets SIGTERM, and SIGKILL after --grace. It is dead before
another owner can have the lock, unless the lock's key or lease was removed by hand. Guard a write that must
not happen after a loss with "etcdlock put", or with ETCDLOCK_TOKEN in the store.

COMMAND has ETCDLOCK_NAME, ETCDLOCK_LOCK_KEY, ETCDLOCK_TOKEN, ETCDLOCK_LEASE, ETCDLOCK_SLOT (with --slots)
and ETCDLOCK_HELD in its environment, and ETCD_LOCK_KEY and ETCD_LOCK_REV as under etcdctl lock.`,
		Example: `  etcdlock run backup -- pg_dump -f /backup/db.sql db
  etcdlock run --once 10m nightly -- /usr/local/bin/nightly   # from cron on every machine
  etcdlock run --limit 3 uploads -- rsync -a /data store:`,
		Args: mistakes(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.waits = cmd.Flags().Changed("wait") || cmd.Flags().Changed("timeout")
			name := args[0]
			argv, err := commandLine(args[1:], r.line)
			if err != nil {
				return err
			}
			if err := r.check(cmd.Flags(), argv); err != nil {
				return err
			}
			return r.run(cmd.Context(), c, name, argv)
		},
	}
	r.register(cmd.Flags())
	return cmd
}

func (r *lockFlags) register(f *pflag.FlagSet) {
	f.SetInterspersed(false)
	r.protection.register(f)
	f.BoolVarP(&r.nonblock, "nonblock", "n", false, "fail if the lock is not free")
	f.VarP(&r.wait, "wait", "w", "fail if the lock was not obtained after so long; by default, wait for ever")
	f.Var(&r.wait, "timeout", "the same as --wait")
	f.BoolVarP(&r.shared, "shared", "s", false, "take a shared lock")
	f.BoolP("exclusive", "x", true, "take an exclusive lock")
	f.BoolP("exclusive-lock", "e", true, "the same as --exclusive")
	_ = f.MarkHidden("exclusive-lock")
	f.IntVarP(&r.conflict, "conflict-exit-code", "E", exitBusy, "exit code if the lock was not obtained")
	f.StringVarP(&r.line, "command", "c", "", "run `line` with /bin/sh -c")
	f.Int64Var(&r.limit, "limit", 0, "how many may hold the lock at the same time; 0 is an ordinary lock")
	f.Int64Var(&r.permits, "permits", 1, "with --limit, how many of them this run counts as")
	f.BoolVar(&r.slots, "slots", false, "with --limit, number the holders: ETCDLOCK_SLOT")
	f.StringArrayVar(&r.also, "also", nil, "take lock `NAME` as well, all or nothing; may be repeated")
	f.Var(&r.minHold, "min-hold", "keep the lock for so long at least, even if the command ends before")
	f.BoolVar(&r.yield, "yield", false, "send SIGTERM to the command when another client waits for the lock")
	f.Var(&r.once, "once", "-n --min-hold, and exit code 0 if the lock is not free: a job that every machine starts")
}

// commandLine returns the command of the arguments after the name, or the line given to -c, which flock
// takes behind the name as well.
func commandLine(args []string, line string) ([]string, error) {
	switch {
	case line != "":
		return append([]string{"/bin/sh", "-c", line, "sh"}, args...), nil
	case len(args) == 2 && args[0] == "-c":
		return []string{"/bin/sh", "-c", args[1]}, nil
	case len(args) > 0 && args[0] == "--":
		return args[1:], nil
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		return nil, mistakef("%s comes after NAME: give flags before it, or -- before a command of that name", args[0])
	}
	return args, nil
}

func (r *lockFlags) check(f *pflag.FlagSet, argv []string) error {
	if err := r.protection.check(f); err != nil {
		return err
	}
	var wrong string
	switch {
	case r.limit < 0 || f.Changed("limit") && r.limit == 0:
		wrong = "--limit must be positive"
	case r.limit == 0 && (r.slots || f.Changed("permits")):
		wrong = "--permits and --slots need --limit"
	case r.limit > 0 && (r.shared || len(r.also) > 0):
		wrong = "--limit cannot be combined with --shared or --also"
	case r.shared && (f.Changed("exclusive") || f.Changed("exclusive-lock")):
		wrong = "--shared and --exclusive exclude each other"
	case r.yield && (r.shared || r.limit > 0 || len(r.also) > 0):
		wrong = "--yield cannot be combined with --shared, --limit or --also"
	case r.conflict < 0 || r.conflict > 255:
		wrong = "--conflict-exit-code must be from 0 to 255"
	case r.once.Duration > 0 && (r.minHold.Duration > 0 || r.waits):
		wrong = "--once cannot be combined with --min-hold or --wait"
	case r.once.Duration > 0 && len(argv) == 0:
		wrong = "--once needs a command"
	}
	if wrong != "" {
		return mistake(errors.New(wrong))
	}
	if r.once.Duration > 0 {
		r.nonblock, r.minHold.Duration = true, r.once.Duration
		if !f.Changed("conflict-exit-code") {
			r.conflict = 0
		}
	}
	if r.waits && r.wait.Duration == 0 {
		r.nonblock = true
	}
	return nil
}

// title is a command for people.
func title(argv []string) string {
	const long = 60
	text := strings.Join(argv, " ")
	if len(text) > long {
		return strings.ToValidUTF8(text[:long], "") + "…"
	}
	return text
}
