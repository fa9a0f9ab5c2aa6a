package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdlock/locks/fairqueue"
)

// permits takes a ticket for permits, which its example is not about.
func permits(ctx context.Context, q *fairqueue.Queue, weight, size int64) *fairqueue.Ticket {
	ticket, err := q.JoinPermits(ctx, weight, size)
	if err != nil {
		log.Fatal(err)
	}
	return ticket
}

// Three downloads at a time, of which a large one counts as two.
func ExampleQueue_JoinPermits() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "downloads")
	large, err := queue.JoinPermits(ctx, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	if err := large.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = queue.TryPermits(ctx, 2, 3)
	fmt.Println("another large one:", errors.Is(err, fairqueue.ErrBusy))
	_, err = queue.TryPermits(ctx, 1, 3)
	fmt.Println("a small one:", err)
	// Output:
	// another large one: true
	// a small one: <nil>
}

// Who has permits, and who waits for some?
func ExampleQueue_Inspect() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "downloads")
	for _, weight := range []int64{2, 2, 1} {
		permits(ctx, queue, weight, 3)
	}
	entries, size, err := queue.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	owning := fairqueue.Owning(entries, size)
	for i, e := range entries {
		fmt.Println(e.Weight, "of", size, i < owning)
	}
	// Output:
	// 2 of 3 true
	// 2 of 3 false
	// 1 of 3 false
}

// The first to come sets the size; whoever thinks of another is told.
func ExampleSizeError() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "downloads")
	permits(ctx, queue, 1, 3)
	for _, asked := range []struct{ weight, size int64 }{{1, 5}, {4, 3}} {
		_, err := queue.JoinPermits(ctx, asked.weight, asked.size)
		var wrong *fairqueue.SizeError
		if errors.As(err, &wrong) {
			fmt.Println(wrong.Asked, wrong.Agreed, wrong.Weight)
		}
	}
	// Output:
	// 5 3 false
	// 4 3 true
}

// There is room for more now, and everybody who cares hears of it.
func ExampleQueue_Resize() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "downloads")
	permits(ctx, queue, 1, 1)
	waiting := permits(ctx, queue, 1, 1)

	for size, err := range queue.Sizes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("size", size)
		if size == 2 {
			break
		}
		if err := queue.Resize(ctx, 2); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(waiting.Wait(ctx))
	// Output:
	// size 1
	// size 2
	// <nil>
}

// A queue for a while, of which nothing is to stay in etcd.
func ExampleQueue_Forget() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "import-42")
	ticket := permits(ctx, queue, 1, 3)
	fmt.Println(errors.Is(queue.Forget(ctx), fairqueue.ErrBusy))
	if err := ticket.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(queue.Forget(ctx))
	// Output:
	// true
	// <nil>
}

// Who asks for a permit without a number, where others have one, is refused.
func ExampleWithSlots() {
	ctx, s, stop := start()
	defer stop()
	permits(ctx, fairqueue.New(s, "licences", fairqueue.WithSlots()), 1, 2)
	_, err := fairqueue.New(s, "licences").JoinPermits(ctx, 1, 2)
	var size *fairqueue.SizeError
	fmt.Println(errors.As(err, &size) && size.Slots)
	// Output: true
}

// Workers that share a few numbered things.
func ExampleTicket_Slot() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "licences", fairqueue.WithSlots())
	for range 2 {
		ticket := permits(ctx, queue, 1, 2)
		if err := ticket.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("licence", ticket.Slot(), "guards:", len(ticket.Guards()))
	}
	// Output:
	// licence 0 guards: 2
	// licence 1 guards: 2
}
