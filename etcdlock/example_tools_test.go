package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

func ExampleInspect() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	h, err := etcdlock.NewMutex(src, "orders", etcdlock.WithLabel("nightly run")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := etcdlock.Inspect(ctx, src.Client(), "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range queue.Places {
		fmt.Println(p.Kind, p.Holding, p.Owner.Label, p.Token == h.Token())
	}
	_ = h.Unlock(ctx)
	// Output: exclusive true nightly run true
}

// Every machine has the same timer. The first one does the job, the others are too late, even
// if their clocks are some seconds behind.
func ExampleWithMinHold() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	report := etcdlock.NewMutex(src, "report", etcdlock.WithMinHold(time.Minute))
	for _, machine := range []string{"a", "b"} {
		h, err := report.TryLock(ctx)
		if errors.Is(err, etcdlock.ErrBusy) {
			fmt.Println(machine, "skips it")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(machine, "does it")
		_ = h.Unlock(ctx)
	}
	// Output:
	// a does it
	// b skips it
}

// Of all machines that have the same timer, one does the job.
func ExampleTryDo() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	report := etcdlock.NewMutex(src, "report")
	job := func(ctx context.Context, _ *etcdlock.Hold) error {
		fmt.Println("at work")
		again := etcdlock.TryDo(ctx, report, func(context.Context, *etcdlock.Hold) error { return nil })
		fmt.Println("at the same time:", errors.Is(again, etcdlock.ErrBusy))
		return nil
	}
	if err := etcdlock.TryDo(ctx, report, job); err != nil {
		log.Fatal(err)
	}
	// Output:
	// at work
	// at the same time: true
}

// All requests that a process serves want the same lock. They stand in etcd's line together, and
// hand it on in memory for at most 50 ms before others have their turn.
func ExampleWithLocalHandover() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	stock := etcdlock.NewMutex(src, "stock", etcdlock.WithLocalHandover(50*time.Millisecond, 1_000))
	left := 100 // of the process, for the sake of the example
	var requests sync.WaitGroup
	for range 100 {
		requests.Go(func() {
			err := etcdlock.Do(ctx, stock, func(context.Context, *etcdlock.Hold) error {
				left--
				return nil
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	requests.Wait()
	fmt.Println(left)
	// Output: 0
}

// A process that locks a name of its own again and again keeps the lock in between, for as long
// as nobody else wants it.
func ExampleWithRetention() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	shard := etcdlock.NewMutex(src, "shard-7", etcdlock.WithRetention(10*time.Second))
	first, err := shard.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = first.Unlock(ctx)
	again, err := shard.Lock(ctx) // no round trip
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Token() == again.Token())
	_ = again.Unlock(ctx)
	// Output: true
}

// What must only be called under a lock can say so.
func ExampleRequireHeld() {
	src, stop := sessions()
	defer stop()
	charge := func(ctx context.Context) error { return etcdlock.RequireHeld(ctx, "orders") }
	ctx := context.Background()
	fmt.Println(charge(ctx))
	fmt.Println(etcdlock.Do(ctx, etcdlock.NewMutex(src, "orders"), func(ctx context.Context, _ *etcdlock.Hold) error {
		return charge(ctx)
	}))
	// Output:
	// require "orders": etcdlock: not held
	// <nil>
}

func ExampleBlockedError() {
	src, stop := sessions()
	defer stop()
	h, err := etcdlock.NewMutex(src, "orders", etcdlock.WithLabel("nightly run")).Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = etcdlock.NewMutex(src, "orders").Lock(ctx)
	var blocked *etcdlock.BlockedError
	if errors.As(err, &blocked) {
		fmt.Println(blocked.Ahead, "ahead, owned by", blocked.Owner.Label, blocked.Token == h.Token())
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	_ = h.Unlock(context.Background())
	// Output:
	// 1 ahead, owned by nightly run true
	// true
}

// Somebody has put a key into the queue by hand. It blocks as another program's ticket does, and without a lease it
// stays.
func ExampleBlockedError_foreign() {
	src, stop := sessions()
	defer stop()
	client := src.Client()
	ctx := context.Background()
	if _, err := client.Put(ctx, "etcdlock/orders/foo", "bar"); err != nil {
		log.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	orders := etcdlock.NewMutex(src, "orders")
	_, err := orders.Lock(soon)
	var blocked *etcdlock.BlockedError
	if errors.As(err, &blocked) && blocked.Foreign && blocked.Lease == clientv3.NoLease {
		fmt.Println("for ever by", blocked.Key)
		if err := etcdlock.ForceRelease(ctx, client, blocked.Key, blocked.Token); err != nil {
			log.Fatal(err)
		}
	}
	_, err = orders.Lock(ctx)
	fmt.Println(err)
	// Output:
	// for ever by etcdlock/orders/foo
	// <nil>
}
