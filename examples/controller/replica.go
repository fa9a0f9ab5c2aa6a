package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// closeTimeout bounds the clean-up after the process was asked to stop.
const closeTimeout = 3 * time.Second

// options are those of one replica.
type options struct {
	Name   string
	Prefix string // of its keys in etcd
	Listen string
	Cloud  string // URL of what it depends on; none: nothing
	TTL    time.Duration
}

// replicaMain is what main would be if this were a service and not an example.
func replicaMain(ctx context.Context, args []string, out io.Writer) error {
	host, _ := os.Hostname() // without one, the process id has to do
	flags := flag.NewFlagSet("controller replica", flag.ContinueOnError)
	endpoints := flags.String("endpoints", "127.0.0.1:2379", "comma-separated endpoints of an etcd cluster")
	var o options
	flags.StringVar(&o.Name, "name", fmt.Sprintf("%s-%d", host, os.Getpid()), "of this replica")
	flags.StringVar(&o.Prefix, "prefix", "controller/", "of all keys in etcd")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address of /healthz and /leader")
	flags.StringVar(&o.Cloud, "cloud", "", "URL of a service with GET /health and POST /fleet?size=N")
	flags.DurationVar(&o.TTL, "ttl", 15*time.Second, "of the session: so long after a crash another one leads")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := stage.Connect(strings.Split(*endpoints, ","))
	if err != nil {
		return err
	}
	defer client.Close()
	return serve(ctx, client, o, func(format string, args ...any) {
		_, _ = fmt.Fprintf(out, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
	})
}

// serve is a replica, from its start until ctx ends.
func serve(ctx context.Context, client *clientv3.Client, o options, say func(string, ...any)) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	sessions := session.Keep(client, session.WithTTL(o.TTL))
	c := newController(client, sessions, o, say)
	server := &http.Server{Handler: c.status(), ReadHeaderTimeout: closeTimeout}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	say("%s serves http://%s/healthz and /leader", o.Name, listener.Addr())

	err = c.run(ctx)

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	failed := errors.Join(server.Shutdown(bounded), sessions.Close(bounded))
	if stopped := <-serving; !errors.Is(stopped, http.ErrServerClosed) {
		failed = errors.Join(failed, stopped)
	}
	return errors.Join(err, failed)
}

// observe remembers the leader, so that /leader costs etcd nothing.
func (c *controller) observe(ctx context.Context) {
	for leader, err := range c.election.Observe(ctx) {
		if err != nil {
			c.say("%s cannot see who leads: %v", c.options.Name, err)
		}
		c.mu.Lock()
		c.leader = leader
		c.mu.Unlock()
	}
}

// status is for the platform: the health of this process, and the leader.
func (c *controller) status() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := c.healthy(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		leader := c.leader
		c.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(leaderReport{leader.Value, leader.Token, leader.Value == c.options.Name})
	})
	return mux
}

type leaderReport struct {
	Leader string         `json:"leader"` // empty: nobody
	Token  etcdlock.Token `json:"token"`
	Self   bool           `json:"self"`
}
