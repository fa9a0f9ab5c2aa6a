package promlock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	promlock "github.com/etcdlock/locks/adapters/prometheus"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func Example() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	metrics := promlock.New(promlock.WithNames("orders"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	sessions := session.Keep(client, metrics.SessionOptions()...)
	defer sessions.Close(ctx)
	metrics.Watch(sessions)

	h, err := etcdlock.NewMutex(sessions, "orders", etcdlock.WithHooks(metrics.Hooks())).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = h.Unlock(ctx) }()
	err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP etcdlock_held Holds of locks.
# TYPE etcdlock_held gauge
etcdlock_held{lock_kind="mutex",lock_name="orders"} 1
`), "etcdlock_held")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println("held once:", err == nil)
	// Output:
	// held once: true
}
