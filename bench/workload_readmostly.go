package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// What the read-mostly workload is made of. Without a time to hold, sharing would gain nothing.
const (
	readers     = 16
	holdFor     = 2 * time.Millisecond
	oneWriteIn  = 20
	readPercent = 100 - 100/oneWriteIn
)

func readMostlyWorkload() workload {
	return workload{
		name: "read-mostly",
		about: fmt.Sprintf("%d contenders with sessions of their own hold one lock for %v each time: %d %% to read, the rest to write. "+
			"A mutex is the same for both.", readers, holdFor, readPercent),
		kinds:   []Kind{Mutex, ReadWrite},
		metrics: []metric{{name: "holds/s", higher: true}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, readers, readers, true)
			if err != nil {
				return nil, err
			}
			var holds atomic.Int64
			end := time.Now().Add(c.options.slice)
			ctx, cancel := context.WithDeadline(ctx, end.Add(drain))
			defer cancel()
			err = parallel(ctx, readers, readers, func(ctx context.Context, i int) error {
				// They write at different turns.
				for turn := i * oneWriteIn / readers; time.Now().Before(end); turn++ {
					lock := all[i].Lock
					if rw, ok := all[i].(ReadLocker); ok && turn%oneWriteIn != 0 {
						lock = rw.RLock
					}
					h, err := lock(ctx)
					if err != nil {
						return fmt.Errorf("lock: %w", err)
					}
					time.Sleep(holdFor)
					if time.Now().Before(end) {
						holds.Add(1)
					}
					if err := h.Unlock(ctx); err != nil {
						return fmt.Errorf("unlock: %w", err)
					}
				}
				return nil
			})
			if err != nil && time.Now().Before(end) {
				return nil, err
			}
			return []float64{float64(holds.Load()) / c.options.slice.Seconds()}, nil
		},
	}
}
