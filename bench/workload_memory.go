package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// weighed is how many sessions and waiters are weighed together.
const weighed = 200

func memoryWorkload() workload {
	return workload{
		name: "memory",
		about: fmt.Sprintf("Heap and stacks of this process, for each of %d sessions on one client, and for each that waits on such "+
			"a session for a lock that is held. For peers on etcd that is client and server together, as the server is in this process; "+
			"for the others the client only.", weighed),
		kinds:   []Kind{Mutex},
		metrics: []metric{{name: "kB for a waiter"}, {name: "kB for a session"}, {name: "goroutines for a waiter"}},
		measure: weigh,
	}
}

func weigh(ctx context.Context, c *cell) ([]float64, error) {
	client, err := c.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	first, err := c.session(ctx, client, 0) // what a client makes once, it makes now
	if err != nil {
		return nil, err
	}
	h, err := first.Locker(c.name).Lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	empty, _ := weight()
	all := make([]Session, weighed)
	err = parallel(ctx, weighed, 8, func(ctx context.Context, i int) (err error) {
		all[i], err = c.session(ctx, client, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	open, before := weight()

	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range all {
		lockLater(waiting, s.Locker(c.name))
	}
	// Not every peer shows when it waits.
	time.Sleep(1500 * time.Millisecond)
	full, after := weight()
	const kB = 1024 * weighed
	figures := []float64{(full - open) / kB, max(0, (open-empty)/kB), (after - before) / weighed}
	cancel()
	return figures, h.Unlock(ctx)
}

func weight() (bytes, goroutines float64) {
	runtime.GC()
	runtime.GC() // stacks shrink by half each time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}
