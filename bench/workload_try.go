package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func tryWorkload() workload {
	return workload{
		name:    "refused try",
		about:   "One contender tries a lock that another holds, and is refused.",
		kinds:   []Kind{Mutex},
		metrics: []metric{{name: "p50, ms"}, {name: "p99, ms"}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, 2, 2, true)
			if err != nil {
				return nil, err
			}
			h, err := all[0].Lock(ctx)
			if err != nil {
				return nil, fmt.Errorf("lock: %w", err)
			}
			var took []float64
			for start := time.Now(); time.Since(start) < c.options.slice/2 || len(took) < 2; {
				began := time.Now()
				if _, err := all[1].TryLock(ctx); !errors.Is(err, errBusy) {
					return nil, fmt.Errorf("try: %w", err)
				}
				took = append(took, milliseconds(time.Since(began)))
			}
			took = took[1:] // the first connects
			return []float64{quantile(took, 0.5), quantile(took, 0.99)}, h.Unlock(ctx)
		},
	}
}
