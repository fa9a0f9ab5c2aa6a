// Package stage has what the examples share, so that each shows only its story: an etcd, further processes,
// signals, and output.
//
//	var program = stage.Program{
//		Name:  "pool",
//		Story: story,                             // what the process does that a person starts
//		Roles: map[string]stage.Act{"worker": worker}, // and those that it starts itself
//	}
//
//	func main() { program.Main() }
//
// None of it is needed to use the locks.
package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/embedtest"
)

const (
	// connectTimeout is how long a cluster may take for its first answer.
	connectTimeout = 5 * time.Second
	// cleanupTimeout bounds what is done when the story is over, for which its context is of
	// no use any more.
	cleanupTimeout = 3 * time.Second
)

// Act is what one process does. It returns when it is done or its context ends.
type Act func(ctx context.Context, e *Etcd) error

// Program is an example.
type Program struct {
	Name  string
	Story Act
	Roles map[string]Act // of the processes that the story starts, by name

	// Members is how many an embedded cluster has, 1 if 0. OnlyEmbedded is for stories that
	// have something done to the cluster that must not be done to anybody's.
	Members      int
	OnlyEmbedded bool

	// Flags may define some more.
	Flags func(*flag.FlagSet)
	// Timeout is after how long something must be wrong; a minute if 0.
	Timeout time.Duration
}

// Etcd is the cluster, as one process sees it.
type Etcd struct {
	Client    *clientv3.Client
	Endpoints []string
	Cluster   *embedtest.Cluster // nil with -endpoints, and in processes that the story has started
	Prefix    string             // for all keys of this run, which ends in a slash; removed at the end

	program Program
	job     json.RawMessage // what the story wants of this process

	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

// Main runs the program, as whichever process this is, and exits.
func (p Program) Main() {
	if len(os.Args) > 2 && os.Args[1] == childArgument {
		os.Exit(p.child(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(p.Run(os.Args[1:], os.Stdout, os.Stderr))
}

// Run is Main for the process that a person starts, and returns the exit code.
func (p Program) Run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(errOut)
	endpoints := ""
	if p.OnlyEmbedded {
		flags.Func("endpoints", "not for this story, which does to its cluster what nobody wants done to theirs",
			func(string) error {
				return errors.New("this story harms its cluster, so it takes an embedded one only")
			})
	} else {
		flags.StringVar(&endpoints, "endpoints", "", "comma-separated endpoints of an etcd cluster; none: an embedded etcd")
	}
	if p.Flags != nil {
		p.Flags(flags)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // the flag set has said why
	case flags.NArg() > 0:
		p.complain(errOut, "unexpected argument %q", flags.Arg(0))
		return 2
	}
	// "... | head" has to clean up, too: writing fails instead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.play(ctx, endpoints, out); err != nil {
		p.complain(errOut, "%v", err)
		return 1
	}
	return 0
}

func (p Program) complain(errOut io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(errOut, p.Name+": "+format+"\n", args...)
}

func (p Program) play(ctx context.Context, endpoints string, out io.Writer) (err error) {
	timeout := p.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done after %v", timeout))
	defer cancel()
	e := &Etcd{
		Prefix:  "etcdlock-" + p.Name + "/" + strings.ToLower(rand.Text()[:8]) + "/",
		program: p, out: out, began: time.Now(),
	}
	if endpoints != "" {
		e.Endpoints = strings.Split(endpoints, ",")
	} else {
		if e.Cluster, err = embedtest.Open(embedtest.WithSize(max(p.Members, 1))); err != nil {
			return err
		}
		defer func() { _ = e.Cluster.Close() }() // what it leaves behind is a temporary directory
		e.Endpoints = e.Cluster.Endpoints()
	}
	if e.Client, err = Connect(e.Endpoints); err != nil {
		return err
	}
	defer func() { _ = e.Client.Close() }()
	if err := e.reach(ctx); err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if _, failed := e.Client.Delete(bounded, e.Prefix, clientv3.WithPrefix()); failed != nil && endpoints != "" {
			err = errors.Join(err, fmt.Errorf("removing %s: %w", e.Prefix, failed))
		}
	}()
	err = p.Story(ctx, e)
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// reach finds out whether etcd is there, rather than to wait for it for ever.
func (e *Etcd) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := e.Client.Get(ctx, e.Prefix); err != nil {
		return fmt.Errorf("etcd at %s: %w", strings.Join(e.Endpoints, ", "), err)
	}
	return nil
}

// Connect makes a client as a service would have one, but for its silence: the examples make
// trouble on purpose, and errors are returned.
func Connect(endpoints []string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          connectTimeout,
		DialKeepAliveTime:    10 * time.Second, // to find out that an endpoint is silent
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}

// Printf tells the audience something, as it is.
func (e *Etcd) Printf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(e.out, format, args...) // nobody listens any more
}

// Say tells the audience what happens now: a line with the time since the beginning.
func (e *Etcd) Say(format string, args ...any) {
	e.Printf("%7.2fs  %s\n", time.Since(e.began).Seconds(), fmt.Sprintf(format, args...))
}
