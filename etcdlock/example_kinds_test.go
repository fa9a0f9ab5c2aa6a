package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// Code that is told what to lock need not know what kind of lock it is.
func ExampleLocker() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")
	for _, kind := range []etcdlock.Locker{
		prices,
		prices.RLocker(),
		etcdlock.NewMutex(src, "orders"),
		etcdlock.NewSemaphore(src, "downloads", 3),
		etcdlock.NewStriped(src, "customers", 64).For("alice"),
	} {
		h, err := kind.TryLock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(h.Name(), "is shared:", h.Shared())
		_ = h.Unlock(ctx)
	}
	// Output:
	// prices is shared: false
	// prices is shared: true
	// orders is shared: false
	// downloads is shared: false
	// customers/7 is shared: false
}

// The readers' side goes where a lock is asked for.
func ExampleRWMutex_RLocker() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	read := etcdlock.NewRWMutex(src, "prices").RLocker()
	one, err := read.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := read.TryLock(ctx)
	fmt.Println(read.Name(), one.Err(), two.Err(), err)
	// Output: prices <nil> <nil> <nil>
}

// What is written is written only while every one of the locks is held.
func ExampleHold_Guards() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	transfer := etcdlock.NewMulti(src, etcdlock.NewMutex(src, "account/7"), etcdlock.NewMutex(src, "account/9"))
	h, err := transfer.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write := func() bool {
		answer, err := src.Client().Txn(ctx).If(h.Guards()...).
			Then(clientv3.OpPut("balance/7", "90"), clientv3.OpPut("balance/9", "110")).Commit()
		return err == nil && answer.Succeeded
	}
	fmt.Println(transfer.Name(), write())
	_ = h.Unlock(ctx)
	fmt.Println(write())
	// Output:
	// account/7+account/9 true
	// false
}

// An option for the whole: the locks stay taken for a minute.
func ExampleMulti_With() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	a, b := etcdlock.NewMutex(src, "backup/a"), etcdlock.NewMutex(src, "backup/b")
	both := etcdlock.NewMulti(src, a, b).With(etcdlock.WithMinHold(time.Minute))
	h, err := both.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = h.Unlock(ctx)
	_, err = a.TryLock(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrBusy))
	// Output: true
}

// Two of three printers are in use: whichever is free will do.
func ExampleStriped_Any() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	printers := etcdlock.NewStriped(src, "printers", 3)
	for i := range printers.Stripes() - 1 {
		if _, err := printers.Stripe(i).Lock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	h, number, err := printers.Any(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = printers.Stripe(number).TryLock(ctx)
	fmt.Println("printer", number, h.Err(), errors.Is(err, etcdlock.ErrBusy))
	// Output: printer 2 <nil> true
}

// Two printers at once for a long job, or another time.
func ExampleStriped_TryAnyN() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	printers := etcdlock.NewStriped(src, "printers", 3)
	h, numbers, err := printers.TryAnyN(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(numbers), "printers")
	_, _, err = printers.TryAnyN(ctx, 2)
	fmt.Println("two more:", !errors.Is(err, etcdlock.ErrBusy))
	_ = h.Unlock(ctx)
	// Output:
	// 2 printers
	// two more: false
}

// A new machine adds permits, and whoever goes by their number hears of it.
func ExampleSemaphore_Resize() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 1)
	if _, err := downloads.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	for size, err := range downloads.Sizes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		_, err = downloads.TryLock(ctx)
		fmt.Println(size, err == nil)
		if size == 2 {
			break
		}
		if err := downloads.Resize(ctx, 2); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1 false
	// 2 true
}

// A name that is not used again leaves nothing in etcd.
func ExampleSemaphore_Forget() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	once := etcdlock.NewSemaphore(src, "import-42", 3)
	h, err := once.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("in use:", errors.Is(once.Forget(ctx), etcdlock.ErrBusy))
	_ = h.Unlock(ctx)
	fmt.Println(once.Forget(ctx))
	// Output:
	// in use: true
	// <nil>
}
