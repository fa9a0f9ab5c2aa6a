package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Code that is given a lock need not know what kind of lock it is.
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
		h := must(kind.TryLock(ctx))
		fmt.Println(h.Name(), "is shared:", h.Shared())
		check(h.Unlock(ctx))
	}
	// Output:
	// prices is shared: false
	// prices is shared: true
	// orders is shared: false
	// downloads is shared: false
	// customers/7 is shared: false
}

// A reader that wants to write would wait for itself, so that is an error.
func ExampleRWMutex() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")

	readers := []*etcdlock.Hold{must(prices.RLock(ctx)), must(prices.RLocker().Lock(ctx)), must(prices.RLocker().TryLock(ctx))}
	_, err := prices.TryLock(ctx)
	fmt.Println("a writer:", errors.Is(err, etcdlock.ErrBusy))
	_, err = prices.Lock(readers[0].Context())
	fmt.Println("a reader:", errors.Is(err, etcdlock.ErrUpgrade))

	for _, h := range readers {
		check(h.Unlock(ctx))
	}
	_, err = prices.TryLock(ctx)
	fmt.Println("a writer:", err)
	// Output:
	// a writer: true
	// a reader: true
	// a writer: <nil>
}

// Read beside other readers, and write only if there is something to write. What was read is still true then.
func ExampleHold_Upgrade() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")

	h := must(prices.LockUpgradeable(ctx))
	reader := must(prices.TryRLock(ctx))
	fmt.Println("another reader beside it:", reader.Shared())
	_, err := prices.TryLockUpgradeable(ctx)
	fmt.Println("another that may write:", errors.Is(err, etcdlock.ErrBusy))
	check(reader.Unlock(ctx))

	check(h.Upgrade(ctx)) // waits for readers
	_, err = prices.TryRLock(ctx)
	fmt.Println("a reader beside the writer:", errors.Is(err, etcdlock.ErrBusy))
	// Output:
	// another reader beside it: true
	// another that may write: true
	// a reader beside the writer: true
}

// The upgradeable side of a lock is a Locker, for Do and whatever takes one.
func ExampleUpgradeableLock() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	side := etcdlock.NewRWMutex(src, "prices").Upgradeable()

	check(etcdlock.Do(ctx, side, func(ctx context.Context, h *etcdlock.Hold) error {
		_, err := side.TryLock(context.Background())
		fmt.Println("for one at a time:", errors.Is(err, etcdlock.ErrBusy))
		_, err = side.Lock(ctx)
		fmt.Println("not from its own context:", errors.Is(err, etcdlock.ErrUpgrade))
		return h.Upgrade(ctx)
	}))
	// Output:
	// for one at a time: true
	// not from its own context: true
}

// Write, then read what was written, without letting another writer in between.
func ExampleHold_Downgrade() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")

	h := must(prices.Lock(ctx))
	check(h.Downgrade(ctx))
	_, err := prices.TryRLock(ctx)
	fmt.Println("another reader:", err)
	_, err = prices.TryLock(ctx)
	fmt.Println("another writer:", errors.Is(err, etcdlock.ErrBusy))
	// Output:
	// another reader: <nil>
	// another writer: true
}

func ExampleSemaphore() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 3)

	h := must(downloads.Acquire(ctx, 2))
	_, err := downloads.TryAcquire(ctx, 2)
	fmt.Println("two more:", errors.Is(err, etcdlock.ErrBusy))
	_, err = etcdlock.NewSemaphore(src, "downloads", 5).Acquire(ctx, 1)
	var wrong *etcdlock.SizeError
	fmt.Println(errors.As(err, &wrong), wrong)

	// A name that is not used again need not leave anything in etcd.
	fmt.Println("in use:", errors.Is(downloads.Forget(ctx), etcdlock.ErrBusy))
	check(h.Unlock(ctx))
	fmt.Println(downloads.Forget(ctx))
	// Output:
	// two more: true
	// true etcdlock: the semaphore has size 3, not 5; its size is changed with Resize
	// in use: true
	// <nil>
}

// A new machine adds permits. A program that depends on their number follows it.
func ExampleSemaphore_Resize() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 1)
	must(downloads.Lock(ctx))
	for size, err := range downloads.Sizes(ctx) {
		check(err)
		_, err = downloads.TryLock(ctx)
		fmt.Println(size, err == nil)
		if size == 2 {
			break
		}
		check(downloads.Resize(ctx, 2))
	}
	// Output:
	// 1 false
	// 2 true
}

// Workers share shards: each works at the one that has its number.
func ExampleWithSlots() {
	src, stop := sessions()
	defer stop()
	shards := etcdlock.NewSemaphore(src, "shards", 3, etcdlock.WithSlots())
	for range 2 {
		number, _ := must(shards.Lock(context.Background())).Slot()
		fmt.Println("shard", number)
	}
	// Output:
	// shard 0
	// shard 1
}

// Others may name the locks in another order: none of them waits for one while it keeps another.
func ExampleMulti() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	from, to := etcdlock.NewMutex(src, "account/7"), etcdlock.NewMutex(src, "account/9")
	rates := etcdlock.NewRWMutex(src, "rates")

	// An option for the whole: the locks stay taken for a minute.
	transfer := etcdlock.NewMulti(src, from, to, rates.RLocker()).With(etcdlock.WithMinHold(time.Minute))
	h := must(transfer.TryLock(ctx))
	fmt.Println(etcdlock.RequireHeld(h.Context(), "account/7"), etcdlock.RequireHeld(h.Context(), "rates"))
	check(h.Unlock(ctx))
	_, err := to.TryLock(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrBusy))

	// Locks of hundreds of keys are better striped.
	var accounts []etcdlock.Lockable
	for number := range 200 {
		accounts = append(accounts, etcdlock.NewMutex(src, fmt.Sprintf("account/%d", number)))
	}
	_, err = etcdlock.NewMulti(src, accounts...).Lock(ctx)
	var tooMany *etcdlock.TooManyError
	if errors.As(err, &tooMany) {
		fmt.Println(tooMany.Places, "locks,", tooMany.Limit, "at most")
	}
	// Output:
	// <nil> <nil>
	// true
	// 200 locks, 127 at most
}

// Any number of customers, and no more than 64 locks.
func ExampleStriped_For() {
	src, stop := sessions()
	defer stop()
	customers := etcdlock.NewStriped(src, "customers", 64)
	fmt.Println(etcdlock.Do(context.Background(), customers.For("alice"), func(context.Context, *etcdlock.Hold) error {
		fmt.Println("stripe", customers.Index("alice"))
		return nil
	}))
	// Output:
	// stripe 7
	// <nil>
}

// The stock of a shop is split into segments, so that buyers do not wait for each other.
func ExampleStriped_AnyN() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	stock := etcdlock.NewStriped(src, "stock", 4)
	must(stock.Stripe(1).Lock(ctx)) // it is counted
	h, segments, err := stock.AnyN(ctx, 3)
	check(err)
	fmt.Println("segments", segments)
	_, _, err = stock.TryAnyN(ctx, 1)
	fmt.Println("one more:", !errors.Is(err, etcdlock.ErrBusy))
	check(h.Unlock(ctx))

	check(stock.DoAnyN(ctx, 2, func(_ context.Context, _ *etcdlock.Hold, segments []int) error {
		_, _, err := stock.Any(ctx)
		fmt.Println(len(segments), "of", stock.Stripes(), "and another one:", err)
		return nil
	}))
	// Output:
	// segments [0 2 3]
	// one more: false
	// 2 of 4 and another one: <nil>
}

// The context decides whether a Lock enters the hold again.
func ExampleReentrant() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	orders := etcdlock.Reentrant(etcdlock.NewMutex(src, "orders"))

	cancel := func(ctx context.Context, outer etcdlock.Token) error { // which locks as well
		return orders.Do(ctx, func(_ context.Context, h *etcdlock.Hold) error {
			fmt.Println("same token:", h.Token() == outer)
			return nil
		})
	}
	outer, h, err := orders.Lock(ctx)
	check(err)
	check(cancel(outer, h.Token()))
	_, _, err = orders.TryLock(ctx)
	fmt.Println("another caller:", errors.Is(err, etcdlock.ErrBusy))
	check(h.Unlock(ctx))

	plain := must(etcdlock.NewMutex(src, "orders").Lock(ctx))
	_, _, err = orders.Lock(plain.Context())
	fmt.Println("taken in another way:", errors.Is(err, etcdlock.ErrNotReentrant))
	// Output:
	// same token: true
	// another caller: true
	// taken in another way: true
}

// A library wants a sync.Locker, and what it does has to end if the lock is lost.
func ExampleNewLocker() {
	src, stop := sessions()
	defer stop()
	l := etcdlock.NewLocker(etcdlock.NewMutex(src, "cache"), func(err error) { log.Fatal(err) })
	l.Lock()
	fmt.Println("locked")
	l.Unlock()
	// Output: locked
}

// All requests that a process serves want the same lock. They have one place in etcd's line, and
// hand the lock on in memory for at most 50 ms before others have their turn.
func ExampleWithLocalHandover() {
	src, stop := sessions()
	defer stop()
	stock := etcdlock.NewMutex(src, "stock", etcdlock.WithLocalHandover(50*time.Millisecond, 1_000))
	left := 100 // of the process, for the sake of the example
	var requests sync.WaitGroup
	for range 100 {
		requests.Go(func() {
			check(etcdlock.Do(context.Background(), stock, func(context.Context, *etcdlock.Hold) error {
				left--
				return nil
			}))
		})
	}
	requests.Wait()
	fmt.Println(left)
	// Output: 0
}

// A process that locks a name of its own again and again keeps the lock in between, for as long
// as no other process wants it.
func ExampleWithRetention() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	shard := etcdlock.NewMutex(src, "shard-7", etcdlock.WithRetention(10*time.Second))
	first := must(shard.Lock(ctx))
	check(first.Unlock(ctx))
	again := must(shard.Lock(ctx)) // nothing is written
	fmt.Println(first.Token() == again.Token())
	// Output: true
}
