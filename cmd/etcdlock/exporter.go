package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// scrapeLimit is how long a request may go on after a signal.
const scrapeLimit = 5 * time.Second

func newExporter(c *connection) *cobra.Command {
	var names []string
	var address string
	cmd := &cobra.Command{
		Use:   "exporter [PATTERN]",
		Short: "Export the lengths of queues to Prometheus",
		Long: `Exporter serves metrics of the locks that ls lists at /metrics, also of programs that use etcdctl or etcd's own
package: etcdlock_queue_holders, etcdlock_queue_waiters, and etcdlock_queue_age_seconds, the time for which the
first in line has been there. That time is by the clock of its machine. For a candidate in an election, and for
another program, it counts from when the exporter saw it first.

The label lock_name has the names given with --name. All other locks share "other": the sum of their holders
and waiters, and the greatest age. With PATTERN only locks that match are counted.

One watch gets the events of the whole namespace, so one exporter is enough. While etcd does not answer, or
refuses, etcdlock_exporter_up is 0 and the other metrics keep their last values. /healthz is about the process
alone. A signal ends it, with the exit code 0.`,
		Example: `  etcdlock exporter --name orders --name scheduler
  etcdlock exporter --http :9479 'orders/*'`,
		Args: mistakes(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := globOf(args)
			if err != nil {
				return err
			}
			return c.export(cmd.Context(), address, g, newQueues(names))
		},
	}
	cmd.Flags().StringVar(&address, "http", "127.0.0.1:9479", "`address` to serve the metrics at")
	cmd.Flags().StringArrayVar(&names, "name", nil, "`name` of a lock that is a label; may be given several times")
	return cmd
}

// export serves metrics until a signal.
func (c *connection) export(ctx context.Context, address string, g glob, q *queues) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		failed <- c.fill(ctx, g, q)
		end()
	}()
	err := serve(ctx, address, "metrics at http://%s/metrics", handler(q))
	end()
	return cmp.Or(err, <-failed)
}

// fill keeps q up to date until ctx ends, or no client can be made.
func (c *connection) fill(ctx context.Context, g glob, q *queues) error {
	client, err := c.lastingClient(ctx)
	if client == nil {
		return err
	}
	defer closeClient(client)
	var running sync.WaitGroup
	running.Go(func() { q.follow(ctx, client, g, c.optionsBelow(g.literal)) })
	running.Go(func() { probe(ctx, client, c.probeKey(g), q.answered) })
	running.Wait()
	return nil
}

func handler(q *queues) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(q, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return mux
}

// serve serves until ctx ends, and lets requests end. Where it does so it says in the form given.
func serve(ctx context.Context, address, form string, h http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return mistake(err)
	}
	say(form, listener.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	err = server.Shutdown(limited)
	served := <-ended
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return server.Close()
	case !errors.Is(served, http.ErrServerClosed):
		return served
	}
	return err
}

func (q *queues) follow(ctx context.Context, client *clientv3.Client, g glob, opts []etcdlock.Option) {
	for queue, err := range etcdlock.FollowAll(ctx, client, opts...) {
		if err != nil {
			q.refuse(err)
			continue
		}
		if queue.Prefix == "" {
			q.know()
			continue
		}
		q.put(queue, g.matches(queue.Name), time.Now())
		// Each state of a long queue is costly, and there are many of them. Those that come meanwhile are skipped.
		sleep(ctx, min(frame, time.Duration(len(queue.Places)/longQueue)*perLongQueue))
	}
}
