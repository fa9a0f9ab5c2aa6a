package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
)

// Three processes start at the same time, and one of them makes the first user.
func ExampleOnce_Do() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	var starting sync.WaitGroup
	for range 3 {
		starting.Go(func() {
			value, err := coord.NewOnce(src, "first user").Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
				fmt.Println("making the first user")
				return coord.Outcome{
					Value:  "admin",
					Writes: []clientv3.Op{clientv3.OpPut("users/admin", "{}")}, // with the mark, or not at all
				}, nil
			})
			check(err)
			fmt.Println("the first user is", value)
		})
	}
	starting.Wait()

	once := coord.NewOnce(src, "first user")
	value, done, err := once.Done(ctx)
	fmt.Println(value, done, err)
	check(once.Reset(ctx))
	_, done, err = once.Done(ctx)
	fmt.Println(done, err)
	// Output:
	// making the first user
	// the first user is admin
	// the first user is admin
	// the first user is admin
	// admin true <nil>
	// false <nil>
}

// With an expiry it is a calculation that one process makes for all, and that is kept for a minute.
func ExampleWithExpiry() {
	src, stop := sessions()
	defer stop()
	rates := coord.NewOnce(src, "rates", coord.WithExpiry(time.Minute))
	for range 2 {
		value, err := rates.Do(context.Background(), func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
			fmt.Println("asking the bank")
			return coord.Outcome{Value: "1.08"}, nil
		})
		check(err)
		fmt.Println(value)
	}
	// Output:
	// asking the bank
	// 1.08
	// 1.08
}

func ExampleLatch() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	ready := coord.NewLatch(src, "ready", 2)

	open := make(chan error)
	go func() { open <- ready.Wait(ctx) }()
	check(ready.Arrive(ctx, "host-1"))
	check(ready.Arrive(ctx, "host-1")) // after a lost answer, say: it counts once
	check(ready.Arrive(ctx, "host-2"))
	check(<-open)
	ids, err := ready.Arrived(ctx)
	check(err)
	fmt.Println("open, with", ids)

	var wrong *coord.CountError
	if err := coord.NewLatch(src, "ready", 3).Arrive(ctx, "host-3"); errors.As(err, &wrong) {
		fmt.Println(wrong.What, wrong.Count, "and", wrong.Declared)
	}
	check(ready.Reset(ctx))
	// Output:
	// open, with [host-1 host-2]
	// arrivals 3 and 2
}

// Three workers begin each phase together. The second Await of a phase is its end: a double barrier.
func ExampleBarrier_Await() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			phase := coord.NewBarrier(src, "phase", 3)
			begin, err := phase.Await(ctx)
			if err != nil {
				log.Print(err) // another worker has to take this one's place
				return
			}
			fmt.Println("works")
			end, err := phase.Await(ctx)
			check(err)
			if end <= begin {
				log.Panic("generations rise")
			}
			fmt.Println("is done")
		})
	}
	running.Wait()
	// Output:
	// works
	// works
	// works
	// is done
	// is done
	// is done
}
