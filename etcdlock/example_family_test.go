package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// sessions returns sessions of an etcd to show things on.
func sessions() (*session.Keeper, func()) {
	client, stop := start()
	keeper := session.Keep(client)
	return keeper, func() { _ = keeper.Close(context.Background()); stop() }
}

func ExampleRWMutex() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")

	one, err := prices.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := prices.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.TryLock(ctx)
	fmt.Println("writer:", errors.Is(err, etcdlock.ErrBusy))
	_ = one.Unlock(ctx)
	_ = two.Unlock(ctx)
	h, err := prices.TryLock(ctx)
	fmt.Println("writer:", err)
	_ = h.Unlock(ctx)
	// Output:
	// writer: true
	// writer: <nil>
}

// Write, then read what was written, without letting another writer in between.
func ExampleHold_Downgrade() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	prices := etcdlock.NewRWMutex(src, "prices")

	h, err := prices.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := h.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	reader, err := prices.TryRLock(ctx)
	fmt.Println("another reader:", err)
	_, err = prices.TryLock(ctx)
	fmt.Println("another writer:", errors.Is(err, etcdlock.ErrBusy))
	_ = reader.Unlock(ctx)
	_ = h.Unlock(ctx)
	// Output:
	// another reader: <nil>
	// another writer: true
}

func ExampleSemaphore() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	downloads := etcdlock.NewSemaphore(src, "downloads", 3)

	h, err := downloads.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_, err = downloads.TryAcquire(ctx, 2)
	fmt.Println("two more:", errors.Is(err, etcdlock.ErrBusy))
	_ = h.Unlock(ctx)

	_, err = etcdlock.NewSemaphore(src, "downloads", 5).Acquire(ctx, 1)
	var wrong *etcdlock.SizeError
	if errors.As(err, &wrong) {
		fmt.Println(wrong)
	}
	// Output:
	// two more: true
	// etcdlock: the semaphore has size 3, not 5; its size is changed with Resize
}

// Workers share shards: each works at the one that has its number.
func ExampleWithSlots() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	shards := etcdlock.NewSemaphore(src, "shards", 3, etcdlock.WithSlots())

	var workers []*etcdlock.Hold
	for range 2 {
		h, err := shards.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		number, _ := h.Slot()
		fmt.Println("shard", number)
		workers = append(workers, h)
	}
	for _, h := range workers {
		_ = h.Unlock(ctx)
	}
	// Output:
	// shard 0
	// shard 1
}

func ExampleMulti() {
	src, stop := sessions()
	defer stop()
	from, to := etcdlock.NewMutex(src, "account/7"), etcdlock.NewMutex(src, "account/9")
	rates := etcdlock.NewRWMutex(src, "rates")

	// Others may name them in another order: nobody waits for one while he keeps another.
	transfer := etcdlock.NewMulti(src, from, to, rates.RLocker())
	err := etcdlock.Do(context.Background(), transfer, func(ctx context.Context, _ *etcdlock.Hold) error {
		return errors.Join(etcdlock.RequireHeld(ctx, "account/7"), etcdlock.RequireHeld(ctx, "rates"))
	})
	fmt.Println(err)
	// Output: <nil>
}

// Any number of customers, and no more than 64 locks.
func ExampleStriped_For() {
	src, stop := sessions()
	defer stop()
	customers := etcdlock.NewStriped(src, "customers", 64)
	err := etcdlock.Do(context.Background(), customers.For("alice"), func(context.Context, *etcdlock.Hold) error {
		fmt.Println("stripe", customers.Index("alice"))
		return nil
	})
	fmt.Println(err)
	// Output:
	// stripe 7
	// <nil>
}

// The stock of a shop is split into segments, so that buyers do not wait for each other.
func ExampleStriped_AnyN() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	stock := etcdlock.NewStriped(src, "stock", 3)
	counting, err := stock.Stripe(1).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	h, segments, err := stock.AnyN(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("segments", segments)
	_ = h.Unlock(ctx)
	_ = counting.Unlock(ctx)
	// Output: segments [0 2]
}

func ExampleReentrant() {
	src, stop := sessions()
	defer stop()
	orders := etcdlock.Reentrant(etcdlock.NewMutex(src, "orders"))

	cancel := func(ctx context.Context, outer etcdlock.Token) error {
		return orders.Do(ctx, func(_ context.Context, h *etcdlock.Hold) error {
			fmt.Println("same token:", h.Token() == outer)
			return nil
		})
	}
	err := orders.Do(context.Background(), func(ctx context.Context, h *etcdlock.Hold) error {
		return cancel(ctx, h.Token()) // which locks as well
	})
	fmt.Println(err)
	// Output:
	// same token: true
	// <nil>
}

// A library wants a sync.Locker, and what it does has to end if the lock is lost.
func ExampleNewLocker() {
	src, stop := sessions()
	defer stop()
	l := etcdlock.NewLocker(etcdlock.NewMutex(src, "cache"), func(err error) {
		log.Fatal(err)
	})
	l.Lock()
	fmt.Println("locked")
	l.Unlock()
	// Output: locked
}

// Two segments of the stock, whichever are free, for one piece of work.
func ExampleStriped_DoAnyN() {
	src, stop := sessions()
	defer stop()
	stock := etcdlock.NewStriped(src, "stock", 3)
	err := stock.DoAnyN(context.Background(), 2, func(_ context.Context, _ *etcdlock.Hold, segments []int) error {
		fmt.Println(len(segments), "segments")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 2 segments
}
