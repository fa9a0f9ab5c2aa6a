package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	alone     = 50 // times that one doctor leaves, undisturbed
	atOnce    = 8  // doctors that leave at the same time
	considers = 20 * time.Millisecond
)

// measure compares the ways that are right.
func measure(ctx context.Context, e *stage.Etcd) error {
	e.Printf("4. What they cost\n\n%-12s  %-24s  %d doctors at once, considering for %v\n",
		"", "one doctor, undisturbed", atOnce, considers)
	e.Printf("%-12s  %24s  %18s  %20s\n", "", "median time to leave", "until all are done", "considered, in all")
	sessions := session.Keep(e.Client)
	defer sessions.Close(ctx)
	for _, w := range ways[1:] {
		var considered atomic.Int64
		r := Roster{
			client:   e.Client,
			prefix:   e.Prefix + "ward/" + w.name + "/",
			lock:     etcdlock.NewMutex(sessions, "ward", etcdlock.WithNamespace(e.Prefix+"locks")),
			consider: func(context.Context, []string) error { return nil },
		}
		for i := range atOnce {
			if _, err := e.Client.Do(ctx, r.put(fmt.Sprint(i), "on")); err != nil {
				return err
			}
		}
		undisturbed := make([]time.Duration, 0, alone)
		for range alone {
			began := time.Now()
			if err := w.leave(r, ctx, "0"); err != nil {
				return err
			}
			undisturbed = append(undisturbed, time.Since(began))
			if _, err := e.Client.Do(ctx, r.put("0", "on")); err != nil {
				return err
			}
		}
		r.consider = func(context.Context, []string) error {
			considered.Add(1)
			time.Sleep(considers)
			return nil
		}
		var leaving sync.WaitGroup
		errs := make([]error, atOnce)
		began := time.Now()
		for i := range atOnce {
			leaving.Go(func() { errs[i] = w.leave(r, ctx, fmt.Sprint(i)) })
		}
		leaving.Wait()
		took := time.Since(began)
		slices.Sort(undisturbed)
		e.Printf("%-12s  %21.1f ms  %15d ms  %14d times\n", w.name,
			float64(undisturbed[alone/2].Microseconds())/1000, took.Milliseconds(), considered.Load())
		refused := 0
		for _, err := range errs {
			switch {
			case errors.Is(err, ErrLast):
				refused++
			case err != nil:
				return err
			}
		}
		if refused != 1 {
			return fmt.Errorf("%s: %d of %d doctors were kept, not 1", w.name, refused, atOnce)
		}
	}
	return nil
}
