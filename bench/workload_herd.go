package main

import (
	"context"
	"time"
)

func herdWorkload(sizes []int) workload {
	return workload{
		name: "herd",
		about: "All join at once, and each unlocks as soon as it is granted, until all have been served. They are spread over 16 " +
			"processes with one client each and one session, if the peer allows that; with etcd's package each has a session " +
			"of its own, made before the clock starts.",
		param: "waiters", params: sizes,
		kinds:   []Kind{Mutex},
		metrics: []metric{{name: "per waiter, ms"}, {name: "all served, s"}},
		chart:   &chartOf{title: "Milliseconds for each waiter of a herd", metric: 0, logY: true},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, min(c.param, maxClients), c.param, false)
			if err != nil {
				return nil, err
			}
			start := time.Now()
			err = parallel(ctx, len(all), len(all), func(ctx context.Context, i int) error { return pair(ctx, all[i]) })
			took := time.Since(start)
			return []float64{milliseconds(took) / float64(len(all)), took.Seconds()}, err
		},
	}
}
