package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// A leader whose health check fails, and one whose session is lost, stop for different reasons.
func ExampleElection_Run() {
	src, stop := sessions()
	defer stop()
	diskFull := make(chan struct{})
	election := etcdlock.NewElection(src, "controller",
		etcdlock.WithHealthCheck(time.Second/4, func(context.Context) error {
			select {
			case <-diskFull:
				return errors.New("the disk is full")
			default:
				return nil
			}
		}))

	ctx, cancel := context.WithCancel(context.Background()) // ends when the program is to stop
	err := election.Run(ctx, "node-1", func(ctx context.Context, _ *etcdlock.Term) error {
		fmt.Println("leading", etcdlock.RequireHeld(ctx, "controller"))
		close(diskFull)
		<-ctx.Done() // work until then
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, etcdlock.ErrUnhealthy):
			fmt.Println(cause)
		case errors.Is(cause, etcdlock.ErrLost):
			fmt.Println("another node may lead")
		}
		cancel() // otherwise Run would wait until it is healthy again
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading <nil>
	// etcdlock: unhealthy: the disk is full
	// run "controller": context canceled
}

func ExampleElection_Campaign() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	election := etcdlock.NewElection(src, "controller", etcdlock.WithPriority(10))
	_, err := election.Leader(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrNoLeader))

	term := must(election.Campaign(ctx, "node-1: starting"))
	check(term.Proclaim(ctx, "node-1: ready"))
	leader := must(election.Leader(ctx))
	fmt.Println(leader.Value, leader.Priority, leader.Key == term.Key(), leader.Token == term.Token())
	fmt.Println(term.Resign(ctx))
	// Output:
	// true
	// node-1: ready 10 true true
	// <nil>
}

func ExampleElection_Observe() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	election := etcdlock.NewElection(src, "controller")

	for leader, err := range election.Observe(ctx) {
		switch {
		case err != nil:
			log.Print(err) // etcd refuses; it goes on trying
		case leader.Vacant():
			fmt.Println("nobody leads")
			must(election.Campaign(ctx, "node-1"))
		default:
			fmt.Println(leader.Value, "leads")
			return
		}
	}
	// Output:
	// nobody leads
	// node-1 leads
}

func ExampleTerm_Transfer() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	election := etcdlock.NewElection(src, "controller", etcdlock.AtPrefix())

	term := must(election.Campaign(ctx, "node-1"))
	next := make(chan *etcdlock.Term)
	go func() { next <- must(election.Campaign(ctx, "node-2")) }()
	for errors.Is(term.Transfer(ctx, "node-2"), etcdlock.ErrNotWaiting) {
		continue // until it is in line
	}
	second := <-next
	fmt.Println(second.Err(), "|", term.Err())

	// Other programs stand in line, as "etcdctl elect" does. They could not be asked to join again.
	for _, key := range []string{"a", "b"} {
		must(src.Client().Put(ctx, election.Name()+"/"+key, "etcdctl "+key))
	}
	fmt.Println(errors.Is(second.Transfer(ctx, "etcdctl b"), etcdlock.ErrForeign), second.Err())
	// Output:
	// <nil> | etcdlock: unlocked
	// true <nil>
}
