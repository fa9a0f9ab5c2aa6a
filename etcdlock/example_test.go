package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// sessions returns sessions of an etcd to show things on.
func sessions() (*session.Keeper, func()) {
	cluster := must(embedtest.Open())
	client := must(cluster.NewClient())
	keeper := session.Keep(client)
	return keeper, func() { _, _, _ = keeper.Close(context.Background()), client.Close(), cluster.Close() }
}

// must returns value, or ends the program if there is an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func Example() {
	client, stop := someClient()
	defer stop()
	ctx := context.Background()

	sessions := session.Keep(client)
	defer sessions.Close(ctx)

	orders := etcdlock.NewMutex(sessions, "orders")
	err := etcdlock.Do(ctx, orders, func(ctx context.Context, h *etcdlock.Hold) error {
		// ctx ends if the lock is lost; the write is refused if it was lost unnoticed.
		_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "42")).Commit()
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

func someClient() (*clientv3.Client, func()) {
	keeper, stop := sessions()
	return keeper.Client(), stop
}

func ExampleMutex_Lock() {
	src, stop := sessions()
	defer stop()
	orders := etcdlock.NewMutex(src, "orders")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h, err := orders.Lock(ctx) // ctx bounds the wait, not the hold
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Name(), h.Token() > 0, h.Err())
	if err := h.Unlock(ctx); errors.Is(err, etcdlock.ErrLost) {
		fmt.Println("somebody else may have been at work, too")
	}
	fmt.Println(h.Err())
	// Output:
	// orders true <nil>
	// etcdlock: unlocked
}

func ExampleMutex_TryLock() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	h, err := etcdlock.NewMutex(src, "nightly").TryLock(ctx)
	fmt.Println(err)
	_, err = etcdlock.NewMutex(src, "nightly").TryLock(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrBusy), err)
	check(h.Unlock(ctx))
	// Output:
	// <nil>
	// true trylock "nightly": queue etcdlock/nightly/: etcdlock: busy
}

// Of all machines that have the same timer, one does the job.
func ExampleTryDo() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	report := etcdlock.NewMutex(src, "report")
	check(etcdlock.TryDo(ctx, report, func(ctx context.Context, _ *etcdlock.Hold) error {
		fmt.Println("at work")
		again := etcdlock.TryDo(ctx, report, func(context.Context, *etcdlock.Hold) error { return nil })
		fmt.Println("at the same time:", errors.Is(again, etcdlock.ErrBusy))
		return nil
	}))
	// Output:
	// at work
	// at the same time: true
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
		check(err)
		fmt.Println(machine, "does it")
		check(h.Unlock(ctx))
	}
	// Output:
	// a does it
	// b skips it
}

// What must only be called under a lock can say so. The context of a hold carries it to where it is needed,
// and ends with it.
func ExampleRequireHeld() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	charge := func(ctx context.Context) error { return etcdlock.RequireHeld(ctx, "orders") }
	fmt.Println(errors.Is(charge(ctx), etcdlock.ErrNotHeld)) // a mistake

	h := must(etcdlock.NewMutex(src, "orders").Lock(ctx))
	fmt.Println(charge(h.Context()))
	check(h.Unlock(ctx))
	<-h.Context().Done()
	fmt.Println(errors.Is(context.Cause(h.Context()), etcdlock.ErrUnlocked))
	// Output:
	// true
	// <nil>
	// true
}

// A write is made only while every one of the locks is held. With a single lock, Guard is enough.
func ExampleHold_Guards() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	transfer := etcdlock.NewMulti(src, etcdlock.NewMutex(src, "account/7"), etcdlock.NewMutex(src, "account/9"))
	h := must(transfer.Lock(ctx))
	write := func(guards ...clientv3.Cmp) bool {
		return must(src.Client().Txn(ctx).If(guards...).
			Then(clientv3.OpPut("balance/7", "90"), clientv3.OpPut("balance/9", "110")).Commit()).Succeeded
	}
	fmt.Println(transfer.Name(), write(h.Guards()...))
	check(h.Unlock(ctx))
	fmt.Println(write(h.Guards()...), write(h.Guard()))
	// Output:
	// account/7+account/9 true
	// false false
}

// A store that is not etcd keeps a Fence next to the data.
func ExampleFence() {
	var fence etcdlock.Fence
	stock := 3
	write := func(token etcdlock.Token) error {
		return fence.Do(token, func() error { stock--; return nil })
	}
	fmt.Println(write(7))
	fmt.Println(write(9)) // the next owner
	fmt.Println(write(7)) // the old one wakes up
	fmt.Println(stock, fence.Admit(9))
	// Output:
	// <nil>
	// <nil>
	// etcdlock: stale token: 7, and 9 has been admitted
	// 1 <nil>
}

// Which call on which lock has failed, and why?
func ExampleError() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	_, nameless := etcdlock.NewMutex(src, "").Lock(ctx)
	_, large := etcdlock.NewElection(src, "controller").Campaign(ctx, strings.Repeat("x", 3<<20))
	check(src.Close(ctx))
	_, late := etcdlock.NewMutex(src, "orders").TryLock(ctx)
	for _, err := range []error{nameless, large, late} {
		var failed *etcdlock.Error
		if errors.As(err, &failed) {
			fmt.Printf("%s %q: %v\n", failed.Op, failed.Name, failed.Err)
		}
	}
	fmt.Println(errors.Is(nameless, etcdlock.ErrInvalidName), errors.Is(large, etcdlock.ErrTooLarge), errors.Is(late, etcdlock.ErrClosed))
	// Output:
	// lock "": etcdlock: invalid name: empty
	// campaign "controller": queue etcdlock/controller/: etcdlock: too large: a value of 3145728 bytes, at most 1048576 are allowed
	// trylock "orders": queue etcdlock/orders/: etcdlock: session closed
	// true true true
}
