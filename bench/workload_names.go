package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

func namesWorkload(goroutines []int) workload {
	return workload{
		name: "many names",
		about: "Goroutines of one process lock and unlock, each a name of its own, through one client and one session. " +
			"Nobody waits for a lock; what counts is what the client and the server can take.",
		param: "goroutines", params: goroutines,
		kinds:   []Kind{Mutex},
		metrics: []metric{{name: "pairs/s", higher: true}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			client, err := c.connect(ctx, false)
			if err != nil {
				return nil, err
			}
			s, err := c.session(ctx, client, 0)
			if err != nil {
				return nil, err
			}
			var pairs atomic.Int64
			var began atomic.Int64
			start := time.Now()
			err = parallel(ctx, c.param, c.param, func(ctx context.Context, i int) error {
				l := s.Locker(fmt.Sprintf("%s-%d", c.name, i))
				if err := pair(ctx, l); err != nil { // connects
					return err
				}
				began.CompareAndSwap(0, int64(time.Since(start)))
				for time.Since(start) < time.Duration(began.Load())+c.options.slice {
					if err := pair(ctx, l); err != nil {
						return err
					}
					pairs.Add(1)
				}
				return nil
			})
			return []float64{float64(pairs.Load()) / (time.Since(start) - time.Duration(began.Load())).Seconds()}, err
		},
	}
}
