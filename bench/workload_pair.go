package main

import (
	"context"
	"fmt"
	"time"
)

func pairWorkload() workload {
	return workload{
		name:    "uncontended",
		about:   "One contender locks and unlocks, and nobody else wants the lock.",
		kinds:   []Kind{Mutex},
		metrics: []metric{{name: "pair p50, ms"}, {name: "p99, ms"}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, 1, 1, true)
			if err != nil {
				return nil, err
			}
			if err := pair(ctx, all[0]); err != nil { // connects
				return nil, err
			}
			var took []float64
			for start := time.Now(); time.Since(start) < c.options.slice; {
				began := time.Now()
				if err := pair(ctx, all[0]); err != nil {
					return nil, err
				}
				took = append(took, milliseconds(time.Since(began)))
			}
			return []float64{quantile(took, 0.5), quantile(took, 0.99)}, nil
		},
	}
}

func pair(ctx context.Context, l Locker) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := h.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
