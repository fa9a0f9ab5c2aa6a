package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func floorWorkload() workload {
	return workload{
		name: "floor",
		about: "What a hand-over on etcd cannot be faster than: from the call that deletes a key until a watch of another client " +
			"has seen it.",
		kinds:   []Kind{Floor},
		metrics: []metric{{name: "p50, ms"}, {name: "p99, ms"}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			var clients [2]*clientv3.Client
			for i := range clients {
				client, err := c.connect(ctx, false)
				if err != nil {
					return nil, err
				}
				clients[i] = client.(etcdClient).Client
			}
			writer, reader := clients[0], clients[1]
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			events := reader.Watch(ctx, c.name, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
			<-events
			var took []float64
			for start := time.Now(); time.Since(start) < c.options.slice; {
				if _, err := writer.Put(ctx, c.name, ""); err != nil {
					return nil, fmt.Errorf("put: %w", err)
				}
				began := time.Now()
				deleted := make(chan error, 1)
				go func() {
					_, err := writer.Delete(ctx, c.name)
					deleted <- err
				}()
				event := <-events
				if err := event.Err(); err != nil || ctx.Err() != nil {
					return nil, fmt.Errorf("watch: %w", context.Cause(ctx))
				}
				took = append(took, milliseconds(time.Since(began)))
				if err := <-deleted; err != nil {
					return nil, fmt.Errorf("delete: %w", err)
				}
			}
			return []float64{quantile(took, 0.5), quantile(took, 0.99)}, nil
		},
	}
}
