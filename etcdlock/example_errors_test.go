package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Which call on which lock has failed, and why?
func ExampleError() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()

	_, nameless := etcdlock.NewMutex(src, "").Lock(ctx)
	_ = src.Close(ctx)
	_, late := etcdlock.NewMutex(src, "orders").TryLock(ctx)
	for _, err := range []error{nameless, late} {
		var failed *etcdlock.Error
		if errors.As(err, &failed) {
			fmt.Printf("%s %q: %v\n", failed.Op, failed.Name, failed.Err)
		}
	}
	fmt.Println(errors.Is(nameless, etcdlock.ErrInvalidName), errors.Is(late, etcdlock.ErrClosed))
	// Output:
	// lock "": etcdlock: invalid name: empty
	// trylock "orders": queue etcdlock/orders/: etcdlock: session closed
	// true true
}

// The context of a hold carries it to where it is needed, and ends with it.
func ExampleHold_Context() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	orders := etcdlock.NewMutex(src, "orders")
	h, err := orders.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(etcdlock.RequireHeld(h.Context(), orders.Name()))
	fmt.Println(errors.Is(etcdlock.RequireHeld(h.Context(), "stock"), etcdlock.ErrNotHeld)) // a mistake

	_ = h.Unlock(ctx)
	<-h.Context().Done()
	fmt.Println(errors.Is(context.Cause(h.Context()), etcdlock.ErrUnlocked))
	// Output:
	// <nil>
	// true
	// true
}

// A reader that wants to write would wait for itself. It is told instead.
func ExampleRWMutex_upgrade() {
	src, stop := sessions()
	defer stop()
	prices := etcdlock.NewRWMutex(src, "prices")
	reader, err := prices.RLock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.Lock(reader.Context())
	fmt.Println(errors.Is(err, etcdlock.ErrUpgrade))

	_ = reader.Unlock(context.Background()) // and look again at what was read
	_, err = prices.Lock(context.Background())
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// The context says who asks.
func ExampleReentrantLock_Lock() {
	src, stop := sessions()
	defer stop()
	orders := etcdlock.Reentrant(etcdlock.NewMutex(src, "orders"))
	outer, first, err := orders.Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, second, err := orders.TryLock(outer)
	fmt.Println("who has it:", err)
	_, _, err = orders.TryLock(context.Background())
	fmt.Println("somebody else:", errors.Is(err, etcdlock.ErrBusy))

	for _, h := range []*etcdlock.Hold{second, first} { // as many as there were locks
		if err := h.Unlock(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	plain, err := etcdlock.NewMutex(src, "orders").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = orders.Lock(plain.Context())
	fmt.Println("taken in another way:", errors.Is(err, etcdlock.ErrNotReentrant))
	// Output:
	// who has it: <nil>
	// somebody else: true
	// taken in another way: true
}

// Locks of thousands of keys are better striped.
func ExampleTooManyError() {
	src, stop := sessions()
	defer stop()
	var accounts []etcdlock.Lockable
	for number := range 200 {
		accounts = append(accounts, etcdlock.NewMutex(src, fmt.Sprintf("account/%d", number)))
	}
	_, err := etcdlock.NewMulti(src, accounts...).Lock(context.Background())
	var tooMany *etcdlock.TooManyError
	if errors.As(err, &tooMany) {
		fmt.Println(tooMany.Places, "locks,", tooMany.Limit, "at most")
	}
	// Output: 200 locks, 127 at most
}

func ExampleElection_Leader() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	election := etcdlock.NewElection(src, "controller")
	_, err := election.Leader(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrNoLeader))

	term, err := election.Campaign(ctx, "node-1: starting")
	if err != nil {
		log.Fatal(err)
	}
	if err := term.Proclaim(ctx, "node-1: ready"); err != nil {
		log.Fatal(err)
	}
	leader, err := election.Leader(ctx)
	fmt.Println(leader.Value, leader.Key == term.Key(), err)
	// Output:
	// true
	// node-1: ready true <nil>
}

// Another program stands in line, as "etcdctl elect" does, and could not be asked to join again.
func ExampleTerm_Transfer_foreign() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	election := etcdlock.NewElection(src, "controller", etcdlock.AtPrefix())
	term, err := election.Campaign(ctx, "node-1")
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := src.Client().Put(ctx, election.Name()+"/"+key, "etcdctl "+key); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(errors.Is(term.Transfer(ctx, "etcdctl b"), etcdlock.ErrForeign), term.Err())
	// Output: true <nil>
}

// A leader that does not feel well, and one that has been lost, stop for different reasons.
func ExampleElection_Run_unhealthy() {
	src, stop := sessions()
	defer stop()
	ill := make(chan struct{})
	check := func(context.Context) error {
		select {
		case <-ill:
			return errors.New("no disk")
		default:
			return nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	election := etcdlock.NewElection(src, "controller", etcdlock.WithHealthCheck(time.Second/4, check))
	err := election.Run(ctx, "node-1", func(ctx context.Context, _ *etcdlock.Term) error {
		close(ill)
		<-ctx.Done()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, etcdlock.ErrUnhealthy):
			fmt.Println("mend it")
		case errors.Is(cause, etcdlock.ErrLost):
			fmt.Println("somebody else may lead")
		}
		cancel()
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// mend it
	// true
}

// A value is for an address, not for a configuration.
func ExampleErrTooLarge() {
	src, stop := sessions()
	defer stop()
	election := etcdlock.NewElection(src, "controller")
	_, err := election.Campaign(context.Background(), strings.Repeat("x", 3<<20))
	fmt.Println(errors.Is(err, etcdlock.ErrTooLarge))
	fmt.Println(err)
	// Output:
	// true
	// campaign "controller": queue etcdlock/controller/: etcdlock: too large: a value of 3145728 bytes, at most 1048576 are allowed
}
