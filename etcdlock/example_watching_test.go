package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Metrics: who waits and holds, and for how long.
func ExampleWithHooks() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	inLine, lost := make(chan struct{}, 1), make(chan struct{})
	var waited, held time.Duration
	note := func(what, name, key string, token etcdlock.Token) {
		fmt.Println(what, name, key != "" && token > 0) // which tell one place in line from all others
	}
	orders := etcdlock.NewMutex(src, "orders", etcdlock.WithHooks(&etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) {
			note("waiting for", w.Name, w.Key, w.Token)
			inLine <- struct{}{}
		},
		Acquired: func(a etcdlock.Acquired) {
			note("acquired", a.Name, a.Key, a.Token)
			waited += a.Waited
		},
		Released: func(r etcdlock.Released) {
			note("released", r.Name, r.Key, r.Token)
			held += r.Held
			if r.Err != nil {
				fmt.Println("not as it should be:", errors.Is(r.Err, etcdlock.ErrLost))
			}
		},
		Lost: func(l etcdlock.Lost) {
			note("lost", l.Name, l.Key, l.Token)
			fmt.Println(errors.Is(l.Err, etcdlock.ErrLost), l.Held > 0)
			close(lost)
		},
	}))

	other, err := etcdlock.NewMutex(src, "orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-inLine
		_ = other.Unlock(ctx)
	}()
	h, err := orders.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	s, err := src.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := src.Client().Revoke(ctx, s.Lease()); err != nil { // an operator's mistake
		log.Fatal(err)
	}
	_ = s.Renew(ctx)
	<-lost
	_ = h.Unlock(ctx)
	fmt.Println(waited > 0, held > 0)
	// Output:
	// waiting for orders true
	// acquired orders true
	// lost orders true
	// true true
	// released orders true
	// not as it should be: true
	// true true
}

func ExampleWithLogger() {
	src, stop := sessions()
	defer stop()
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug, // losses, and releases that fail, are warnings
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey || a.Key == "lock" {
				return a
			}
			return slog.Attr{} // for an output that is always the same
		},
	})
	orders := etcdlock.NewMutex(src, "orders", etcdlock.WithLogger(slog.New(handler)))
	err := etcdlock.Do(context.Background(), orders, func(context.Context, *etcdlock.Hold) error { return nil })
	fmt.Println(err)
	// Output:
	// msg="lock acquired" lock=orders
	// msg="lock released" lock=orders
	// <nil>
}

// What an operator wants to see of a semaphore.
func ExampleQueue() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 3)
	for _, n := range []int64{2, 1} {
		if _, err := downloads.Acquire(ctx, n); err != nil {
			log.Fatal(err)
		}
	}

	queue, err := etcdlock.Inspect(ctx, src.Client(), downloads.Name())
	if err != nil {
		log.Fatal(err)
	}
	s, err := src.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(queue.Name, "at", queue.Prefix, "has", queue.Size, "permits and", queue.Holding, "holders")
	for _, p := range queue.Places {
		fmt.Println(p.Kind, p.Weight, p.Holding, p.Lease == s.Lease(), p.TTL > 0)
	}
	// Output:
	// downloads at etcdlock/downloads/ has 3 permits and 2 holders
	// permit 2 true true true
	// permit 1 true true true
}

// And of an election.
func ExamplePlace() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	term, err := etcdlock.NewElection(src, "controller", etcdlock.WithPriority(10)).Campaign(ctx, "node-1")
	if err != nil {
		log.Fatal(err)
	}
	queue, err := etcdlock.Inspect(ctx, src.Client(), "controller")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range queue.Places {
		fmt.Println(p.Kind, p.Value, p.Priority, p.Key == term.Key(), p.Token == term.Token())
	}
	// Output: candidate node-1 10 true true
}

// A program that nobody knows any more keeps a lock. The error of who cannot get it says enough to
// remove it.
func ExampleForceRelease() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	if _, err := src.Client().Put(ctx, "legacy/694d", "left by cron on host-3"); err != nil {
		log.Fatal(err)
	}

	legacy := etcdlock.NewMutex(src, "legacy", etcdlock.AtPrefix())
	var blocked *etcdlock.BlockedError
	for blocked == nil { // it takes a read that etcd has to answer soon
		patience, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := legacy.Lock(patience)
		cancel()
		errors.As(err, &blocked)
	}
	fmt.Println(blocked.Value, "|", errors.Is(blocked.Err, context.DeadlineExceeded))

	if err := etcdlock.ForceRelease(ctx, src.Client(), blocked.Key, blocked.Token); err != nil {
		log.Fatal(err)
	}
	_, err := legacy.Lock(ctx)
	fmt.Println(err)
	again := etcdlock.ForceRelease(ctx, src.Client(), blocked.Key, blocked.Token)
	fmt.Println(errors.Is(again, etcdlock.ErrStale)) // it cannot hit somebody else
	// Output:
	// left by cron on host-3 | true
	// <nil>
	// true
}
