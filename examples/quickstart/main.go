// Quickstart shows the lock at work, and what happens to it when a holder dies.
//
//	go run ./examples/quickstart
//
// Several worker processes count to a number together, in a counter in etcd that only
// the holder of a lock may raise. Half way the process that holds the lock is killed.
// Its lease runs out, the next in line takes over, and in the end the program reads
// from etcd whether an increment was lost and whether the tokens rose. It exits with 0
// only if everything is as promised.
//
// Nothing needs to be installed: without -endpoints the program runs an etcd of its own.
// With -endpoints it uses that cluster, below a prefix that it removes at the end.
//
// To see how a service would use the lock, read worker.go and then ledger.go. verify.go
// is the proof, play.go the parent process, crew.go how it runs the others.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/embedtest"
)

const (
	// connectTimeout is how long a cluster may take for its first answer.
	connectTimeout = 5 * time.Second
	// cleanupTimeout bounds what has to be done after the end, which has a context of
	// its own: the one that was just cancelled is of no use for it.
	cleanupTimeout = 2 * time.Second
)

type config struct {
	endpoints []string // none: an embedded etcd
	workers   int
	rounds    int64
	ttl       time.Duration
	timeout   time.Duration
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		os.Exit(workerMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

func parentMain(args []string, out, errOut io.Writer) int {
	cfg, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has said why
	}
	// "quickstart | head" has to put its things away, too: writing fails instead.
	signal.Ignore(syscall.SIGPIPE)
	// Stopping is bounded, so a second signal need not end it at once: some senders
	// repeat it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	passed, err := run(ctx, cfg, out)
	if err != nil {
		complain(errOut, err)
	}
	if err != nil || !passed {
		return 1
	}
	return 0
}

func parse(args []string, errOut io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(errOut)
	endpoints := flags.String("endpoints", "", "comma-separated endpoints of an etcd cluster; none: an embedded etcd")
	flags.IntVar(&cfg.workers, "workers", 4, "number of worker processes, at least 2")
	flags.Int64Var(&cfg.rounds, "rounds", 20, "number to count to, at least 2")
	flags.DurationVar(&cfg.ttl, "ttl", 2*time.Second, "how long a dead worker keeps its lock, at least 1s")
	flags.DurationVar(&cfg.timeout, "timeout", 15*time.Second, "give up after this long; many rounds need more")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if *endpoints != "" {
		cfg.endpoints = strings.Split(*endpoints, ",")
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.workers < 2:
		err = errors.New("-workers must be at least 2: one is killed, another takes over")
	case cfg.rounds < 2:
		err = errors.New("-rounds must be at least 2")
	case cfg.ttl < time.Second:
		err = errors.New("-ttl must be at least 1s")
	}
	if err != nil {
		complain(errOut, err)
	}
	return cfg, err
}

// run plays the whole thing and reports whether every check has passed.
func run(ctx context.Context, cfg config, out io.Writer) (passed bool, err error) {
	began := time.Now()
	where := strings.Join(cfg.endpoints, ", ")
	if len(cfg.endpoints) == 0 {
		cluster, err := embedtest.Open()
		if err != nil {
			return false, err
		}
		defer func() { _ = cluster.Close() }() // what it leaves behind is a temporary directory
		cfg.endpoints = cluster.Endpoints()
		where = fmt.Sprintf("embedded, up after %v", short(time.Since(began)))
	}
	client, err := connect(cfg.endpoints)
	if err != nil {
		return false, err
	}
	defer client.Close()
	book := ledger{client: client, prefix: "etcdlock-quickstart/" + strings.ToLower(rand.Text()[:12]) + "/"}
	revision, err := book.revision(ctx)
	if err != nil {
		return false, fmt.Errorf("etcd at %s: %w", where, err)
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, book.remove(bounded))
	}()

	ctx, cancel := context.WithTimeoutCause(ctx, cfg.timeout, fmt.Errorf("not done after %v", cfg.timeout))
	defer cancel()
	play := newPlay(cfg, book, newAccount(out, began))
	play.account.opening(where, book.prefix, cfg)
	if err := play.run(ctx, revision+1); err != nil {
		play.account.note("stopped: %v", err)
		return false, err
	}
	found, err := book.evidence(ctx)
	if err != nil {
		return false, err
	}
	found.goal, found.told, found.kill = cfg.rounds, play.told, play.kill
	passed = play.account.closing(found, verify(found))
	return passed, play.account.err
}

func complain(errOut io.Writer, err error) { _, _ = fmt.Fprintln(errOut, "quickstart:", err) }

// connect makes the client of the parent and of every worker.
func connect(endpoints []string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: connectTimeout,
		Logger:      zap.NewNop(), // errors are returned; its warnings would only disturb the picture
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}
