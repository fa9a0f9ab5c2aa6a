// Metrics is a service whose locks are watched: workers take the lock "orders", replicas elect a leader, and /metrics has
// what adapters/prometheus measures.
//
//	go -C examples/metrics run .
//
// works on an embedded etcd for a few seconds, and prints what it has measured. With -endpoints it serves until a signal;
// deploy/compose.yaml runs three replicas with Prometheus, Grafana and the dashboard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"

	promlock "github.com/etcdlock/locks/adapters/prometheus"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	workers = 3
	working = 20 * time.Millisecond // at most, with the lock
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd's addresses, separated by commas; without them an embedded etcd is used")
	address := flag.String("http", "127.0.0.1:8080", "where to serve /metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, *endpoints, *address); err != nil {
		log.Fatal(err)
	}
}

func start(ctx context.Context, endpoints, address string) error {
	if endpoints == "" {
		return show(ctx)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(endpoints, ","), DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	return serve(ctx, client, host, registry)
}

// serve works until ctx ends. This is what a service does to be watched.
func serve(ctx context.Context, client *clientv3.Client, id string, registry prometheus.Registerer) error {
	metrics := promlock.New(promlock.WithNames("orders", "leader"))
	if err := registry.Register(metrics); err != nil {
		return err
	}
	sessions := session.Keep(client, metrics.SessionOptions()...)
	metrics.Watch(sessions)
	hooks := etcdlock.WithHooks(metrics.Hooks())

	var running sync.WaitGroup
	for range workers {
		running.Go(func() { work(ctx, etcdlock.NewMutex(sessions, "orders", hooks)) })
	}
	err := etcdlock.NewElection(sessions, "leader", hooks).Run(ctx, id, func(term context.Context, _ *etcdlock.Term) error {
		<-term.Done()
		return nil
	})
	running.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, sessions.Close(ending))
}

// work does something with the lock, again and again.
func work(ctx context.Context, orders *etcdlock.Mutex) {
	for ctx.Err() == nil {
		err := etcdlock.Do(ctx, orders, func(ctx context.Context, _ *etcdlock.Hold) error {
			pause(ctx, rand.N(working))
			return nil
		})
		if err != nil {
			pause(ctx, time.Second)
		}
		pause(ctx, rand.N(working))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// show serves for a moment on an embedded etcd, and prints what was measured.
func show(ctx context.Context) error {
	cluster, err := embedtest.Open()
	if err != nil {
		return err
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	registry := prometheus.NewRegistry()
	if err := serve(limited, client, "me", registry); err != nil {
		return err
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))
			if h := m.GetHistogram(); h != nil {
				fmt.Printf("%s %d times, %.3f s in all\n", name, h.GetSampleCount(), h.GetSampleSum())
			} else {
				fmt.Printf("%s %v\n", name, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
	return nil
}
