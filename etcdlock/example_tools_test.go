package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// A process that is told to stop takes no new locks, finishes what it holds locks for, and closes its session then.
func Example_drain() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	keeper := session.Keep(src.Client())
	h := must(etcdlock.NewMutex(keeper, "order 17").Lock(ctx))
	go func() {
		fmt.Println("finishing order 17 with the lock held:", h.Err() == nil)
		check(h.Unlock(ctx))
	}()

	limited, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	check(keeper.Drain(limited))
	_, err := etcdlock.NewMutex(keeper, "order 18").Lock(ctx)
	fmt.Println("order 18 is for another process:", errors.Is(err, session.ErrClosed))
	// Output:
	// finishing order 17 with the lock held: true
	// order 18 is for another process: true
}

// What an operator wants to see.
func ExampleInspect() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 3, etcdlock.WithLabel("nightly run"))
	for _, n := range []int64{2, 1} {
		must(downloads.Acquire(ctx, n))
	}
	must(etcdlock.NewElection(src, "controller", etcdlock.WithPriority(10)).Campaign(ctx, "node-1"))

	for _, name := range []string{downloads.Name(), "controller"} {
		queue := must(etcdlock.Inspect(ctx, src.Client(), name))
		fmt.Println(queue.Name, "at", queue.Prefix, "has", queue.Size, "permits and", queue.Holding, "holders")
		for _, p := range queue.Places {
			fmt.Println(p.Kind, p.Holding, p.Key != "" && p.Token > 0 && p.Lease != clientv3.NoLease && p.TTL > 0)
			fmt.Printf("weight %d, priority %d, label %q, leader %t\n", p.Weight, p.Priority, p.Owner.Label, p.Value == "node-1")
		}
	}
	// Output:
	// downloads at etcdlock/downloads/ has 3 permits and 2 holders
	// permit true true
	// weight 2, priority 0, label "nightly run", leader false
	// permit true true
	// weight 1, priority 0, label "nightly run", leader false
	// controller at etcdlock/controller/ has 0 permits and 1 holders
	// candidate true true
	// weight 0, priority 10, label "", leader true
}

// A list of all locks, and a view that is kept up with them.
func ExampleFollowAll() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	h := must(etcdlock.NewMutex(src, "orders").Lock(ctx))
	must(etcdlock.NewElection(src, "controller").Campaign(ctx, "node-1"))
	for queue, err := range etcdlock.InspectAll(ctx, src.Client()) {
		check(err)
		fmt.Println(queue.Name, "is held by", queue.Holding)
	}

	view := make(map[string]etcdlock.Queue)
	for queue, err := range etcdlock.FollowAll(ctx, src.Client()) {
		check(err)
		view[queue.Prefix] = queue
		switch {
		case len(view) == 2 && h.Err() == nil:
			check(h.Unlock(ctx))
		case queue.Name == "orders" && len(queue.Places) == 0:
			fmt.Println("orders is free")
			return
		}
	}
	// Output:
	// controller is held by 1
	// orders is held by 1
	// orders is free
}

func ExampleBlockedError() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	orders := etcdlock.NewMutex(src, "orders", etcdlock.WithLabel("nightly run"))
	h := must(orders.Lock(ctx))
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := orders.Lock(soon)
	var blocked *etcdlock.BlockedError
	if errors.As(err, &blocked) {
		fmt.Println(blocked.Ahead, "ahead, owned by", blocked.Owner.Label, blocked.Token == h.Token())
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// 1 ahead, owned by nightly run true
	// true
}

// A program that nobody knows any more, or somebody's hand, has left a key, which without a lease stays for ever. The
// error of a wait that times out says enough to remove it.
func ExampleForceRelease() {
	src, stop := sessions()
	defer stop()
	client, ctx := src.Client(), context.Background()
	must(client.Put(ctx, "legacy/694d", "left by cron on host-3"))

	legacy := etcdlock.NewMutex(src, "legacy", etcdlock.AtPrefix())
	var blocked *etcdlock.BlockedError
	for blocked == nil { // it takes a read that etcd has to answer soon
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := legacy.Lock(soon)
		cancel()
		errors.As(err, &blocked)
	}
	fmt.Println(blocked.Key, "|", blocked.Value, "|", blocked.Foreign, blocked.Lease == clientv3.NoLease)
	fmt.Println(errors.Is(blocked.Err, context.DeadlineExceeded))

	check(etcdlock.ForceRelease(ctx, client, blocked.Key, blocked.Token))
	must(legacy.Lock(ctx))
	again := etcdlock.ForceRelease(ctx, client, blocked.Key, blocked.Token)
	fmt.Println(errors.Is(again, etcdlock.ErrStale)) // it cannot hit a later owner
	// Output:
	// legacy/694d | left by cron on host-3 | true true
	// true
	// true
}

// Metrics: waits and holds, and how long they take.
func ExampleWithHooks() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	inLine, lost := make(chan struct{}, 1), make(chan struct{})
	note := func(what string, e etcdlock.Event) {
		// Key and Token tell one place in line from all others. The context may have a span.
		fmt.Println(what, e.Kind, e.Name, e.Key != "" && e.Token > 0, e.Context != nil)
	}
	waiters, holds := 0, 0 // gauges; atomic where several goroutines lock
	orders := etcdlock.NewMutex(src, "orders", etcdlock.WithHooks(&etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) {
			note("waiting for", w.Event)
			waiters++
			inLine <- struct{}{}
		},
		Acquired: func(a etcdlock.Acquired) {
			note("acquired", a.Event)
			fmt.Println("waited:", a.Waited > 0)
			if a.Queued {
				waiters--
			}
			holds++
		},
		Failed: func(f etcdlock.Failed) {
			fmt.Println("failed", f.Name, f.Waited > 0, "busy:", errors.Is(f.Err, etcdlock.ErrBusy))
			if f.Queued {
				waiters--
			}
		},
		Released: func(r etcdlock.Released) {
			note("released", r.Event)
			fmt.Println("held:", r.Held > 0, "lost:", errors.Is(r.Err, etcdlock.ErrLost))
			if !r.AfterLost {
				holds--
			}
		},
		Lost: func(l etcdlock.Lost) {
			note("lost", l.Event)
			fmt.Println("held:", l.Held > 0, "lost:", errors.Is(l.Err, etcdlock.ErrLost))
			holds--
			close(lost)
		},
	}))

	other := must(etcdlock.NewMutex(src, "orders").Lock(ctx))
	_, _ = orders.TryLock(ctx)
	go func() {
		<-inLine
		check(other.Unlock(ctx))
	}()
	h := must(orders.Lock(ctx))
	s := must(src.Session(ctx))
	must(src.Client().Revoke(ctx, s.Lease())) // an operator's mistake
	_ = s.Renew(ctx)
	<-lost
	_ = h.Unlock(ctx)
	fmt.Println("waiters:", waiters, "holds:", holds)
	// Output:
	// failed orders true busy: true
	// waiting for mutex orders true true
	// acquired mutex orders true true
	// waited: true
	// lost mutex orders true true
	// held: true lost: true
	// released mutex orders true true
	// held: true lost: true
	// waiters: 0 holds: 0
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
	fmt.Println(etcdlock.Do(context.Background(), orders, func(context.Context, *etcdlock.Hold) error { return nil }))
	// Output:
	// msg="lock acquired" lock=orders
	// msg="lock released" lock=orders
	// <nil>
}
