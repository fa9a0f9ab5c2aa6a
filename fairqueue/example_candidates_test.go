package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/etcdlock/locks/fairqueue"
)

// candidate joins, which its example is not about.
func candidate(ctx context.Context, q *fairqueue.Queue, value string, priority int) *fairqueue.Ticket {
	ticket, err := q.JoinCandidate(ctx, value, priority)
	if err != nil {
		log.Fatal(err)
	}
	return ticket
}

// The leader goes, and it is not the next in line that is to lead, but the best.
func ExampleTicket_PassTo() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "controller")
	leader := candidate(ctx, queue, "node-1", 0)
	if err := leader.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	small := candidate(ctx, queue, "node-2", 1)
	large := candidate(ctx, queue, "node-3", 9)

	err := leader.PassTo(ctx, func(behind []fairqueue.Entry) int {
		best := 0
		for i, candidate := range behind {
			if candidate.Priority > behind[best].Priority {
				best = i
			}
		}
		fmt.Printf("%s is to lead\n", behind[best].Value)
		return best
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it does:", large.Wait(ctx))
	fmt.Println("the other one has to join again:", errors.Is(small.Wait(ctx), fairqueue.ErrGone))
	// Output:
	// node-3 is to lead
	// it does: <nil>
	// the other one has to join again: true
}

// Whoever comes up while a better one waits gives way to it, unless it was chosen by name.
func ExampleTicket_GiveWay() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "controller")
	leader := candidate(ctx, queue, "node-1", 0)
	if err := leader.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	small := candidate(ctx, queue, "", 1)
	large := candidate(ctx, queue, "", 9)
	if err := leader.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(small.Wait(ctx))
	fmt.Println(small.GiveWay(ctx))
	fmt.Println(large.Wait(ctx))
	fmt.Println(large.GiveWay(ctx))
	// Output:
	// <nil>
	// true <nil>
	// <nil>
	// false <nil>
}

// A ticket cannot be passed to somebody who is not there, nor past somebody who would not join again.
func ExampleTicket_PassTo_impossible() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "controller")
	leader := joined(ctx, queue, fairqueue.Candidate)
	if err := leader.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	toLast := func(behind []fairqueue.Entry) int { return len(behind) - 1 }
	fmt.Println(errors.Is(leader.PassTo(ctx, toLast), fairqueue.ErrNotWaiting))

	if _, err := s.Client().Put(ctx, "controller/of-another-program", ""); err != nil {
		log.Fatal(err)
	}
	joined(ctx, queue, fairqueue.Candidate)
	fmt.Println(errors.Is(leader.PassTo(ctx, toLast), fairqueue.ErrForeign))
	fmt.Println(leader.Set(ctx, "still leading"))
	// Output:
	// true
	// true
	// <nil>
}

// What is too large for etcd would hold up what goes out together with it.
func ExampleErrTooLarge() {
	ctx, s, stop := start()
	defer stop()
	ticket := candidate(ctx, fairqueue.New(s, "controller"), "node-1", 0)
	err := ticket.Set(ctx, strings.Repeat("x", 3<<20))
	fmt.Println(errors.Is(err, fairqueue.ErrTooLarge), ticket.Left())
	// Output: true false
}
