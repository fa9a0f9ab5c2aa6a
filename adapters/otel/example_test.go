package otellock_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	otellock "github.com/etcdlock/locks/adapters/otel"
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

	reader := metric.NewManualReader() // usually a reader that exports
	instruments, err := otellock.New(otellock.WithNames("orders"),
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		log.Fatal(err)
	}
	sessions := session.Keep(client, instruments.SessionOptions()...)
	defer sessions.Close(ctx)
	instruments.Watch(sessions)

	h, err := etcdlock.NewMutex(sessions, "orders", etcdlock.WithHooks(instruments.Hooks())).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = h.Unlock(ctx) }()
	var measured metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &measured); err != nil {
		log.Fatal(err)
	}
	for _, m := range measured.ScopeMetrics[0].Metrics {
		if held, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "etcdlock.held" {
			fmt.Println(m.Name, held.DataPoints[0].Value, m.Unit)
		}
	}
	// Output:
	// etcdlock.held 1 {hold}
}
