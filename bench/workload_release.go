package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// settle is for the waiter's watch to stand. It is longer than 100 ms, because etcd looks
// after watches that begin in the past, as those of its own package do, only that often.
const settle = 300 * time.Millisecond

// maxPoll is the longest interval at which a peer on Redis polls.
const maxPoll = 250 * time.Millisecond

func releaseWorkload() workload {
	return workload{
		name: "clean release",
		about: fmt.Sprintf("From the call of unlock, or resign, until the only waiter, of %v to %v, is granted; the median. "+
			"The plain watcher shows what that cannot be faster than on etcd: from the call that deletes a key until the event of another client's watch.",
			settle, settle+maxPoll),
		kinds:   []Kind{Mutex, Election, Floor},
		metrics: []metric{{name: "hand-over, ms"}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			if c.peer.Kind == Floor {
				return deletions(ctx, c)
			}
			all, err := c.processes(ctx, 2, 2, true)
			if err != nil {
				return nil, err
			}
			h, err := all[0].Lock(ctx)
			if err != nil {
				return nil, fmt.Errorf("lock: %w", err)
			}
			var took []float64
			for start := time.Now(); time.Since(start) < c.options.slice || len(took) < 3; {
				next := lockLater(ctx, all[(len(took)+1)%2])
				wait()
				began := time.Now()
				if err := h.Unlock(ctx); err != nil {
					return nil, fmt.Errorf("unlock: %w", err)
				}
				g := <-next
				if g.err != nil {
					return nil, fmt.Errorf("lock: %w", g.err)
				}
				took = append(took, milliseconds(g.at.Sub(began)))
				h = g.hold
			}
			return []float64{quantile(took, 0.5)}, h.Unlock(ctx)
		},
	}
}

// wait lasts a random time, so that it is not in step with waiters that poll.
func wait() { time.Sleep(settle + rand.N(maxPoll)) }

// deletions are seen by a watch, as the end of a predecessor is, but nothing follows from them.
func deletions(ctx context.Context, c *cell) ([]float64, error) {
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
	for start := time.Now(); time.Since(start) < c.options.slice || len(took) < 3; {
		if _, err := writer.Put(ctx, c.name, ""); err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		wait()
		began := time.Now()
		deleted := make(chan error, 1)
		go func() {
			_, err := writer.Delete(ctx, c.name)
			deleted <- err
		}()
		var at time.Time
		for event, answered := false, false; !event || !answered; {
			select {
			case response := <-events:
				if at, event = time.Now(), len(response.Events) > 0; !event {
					return nil, fmt.Errorf("watch: %w", errors.Join(errors.New("it ended"), response.Err(), context.Cause(ctx)))
				}
			case err := <-deleted:
				if answered = true; err != nil {
					return nil, fmt.Errorf("delete: %w", err)
				}
			}
		}
		took = append(took, milliseconds(at.Sub(began)))
	}
	return []float64{quantile(took, 0.5)}, nil
}
