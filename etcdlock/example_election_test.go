package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func ExampleElection_Run() {
	client, stop := start()
	defer stop()
	sessions := session.Keep(client)
	defer sessions.Close(context.Background())

	ctx, cancel := context.WithCancel(context.Background()) // ends when the program is to stop
	err := etcdlock.NewElection(sessions, "controller").Run(ctx, "node-1", func(ctx context.Context, _ *etcdlock.Term) error {
		fmt.Println("leading", etcdlock.RequireHeld(ctx, "controller"))
		cancel()
		<-ctx.Done() // work until then
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading <nil>
	// run "controller": context canceled
}

func ExampleElection_Campaign() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	election := etcdlock.NewElection(sessions, "controller")

	term, err := election.Campaign(ctx, "node-1")
	if err != nil {
		log.Fatal(err)
	}
	leader, err := election.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == term.Token(), err)
	fmt.Println(term.Resign(ctx))
	// Output:
	// node-1 true <nil>
	// <nil>
}

func ExampleElection_Observe() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	election := etcdlock.NewElection(sessions, "controller")

	for leader, err := range election.Observe(ctx) {
		switch {
		case err != nil:
			log.Print(err) // etcd refuses; it goes on trying
		case leader.Vacant():
			fmt.Println("nobody leads")
			if _, err := election.Campaign(ctx, "node-1"); err != nil {
				log.Fatal(err)
			}
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
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	election := etcdlock.NewElection(sessions, "controller")

	term, err := election.Campaign(ctx, "node-1")
	if err != nil {
		log.Fatal(err)
	}
	next := make(chan *etcdlock.Term)
	go func() {
		term, _ := election.Campaign(ctx, "node-2")
		next <- term
	}()
	for errors.Is(term.Transfer(ctx, "node-2"), etcdlock.ErrNotWaiting) {
		time.Sleep(time.Millisecond) // it is not in line yet
	}
	fmt.Println((<-next).Err(), "|", term.Err())
	// Output: <nil> | etcdlock: unlocked
}

func ExampleWithHealthCheck() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)

	diskFull := make(chan struct{})
	election := etcdlock.NewElection(sessions, "controller",
		etcdlock.WithHealthCheck(time.Second/4, func(context.Context) error {
			select {
			case <-diskFull:
				return errors.New("the disk is full")
			default:
				return nil
			}
		}))
	ctx, cancel := context.WithCancel(ctx)
	_ = election.Run(ctx, "node-1", func(ctx context.Context, _ *etcdlock.Term) error {
		close(diskFull)
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		cancel() // otherwise Run would wait until it is healthy again
		return nil
	})
	// Output: etcdlock: unhealthy: the disk is full
}

func ExampleWithPriority() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)

	preferred := etcdlock.NewElection(sessions, "controller", etcdlock.WithPriority(10))
	term, err := preferred.Campaign(ctx, "node-1")
	if err != nil {
		log.Fatal(err)
	}
	leader, err := preferred.Leader(ctx)
	fmt.Println(leader.Value, leader.Priority, err)
	fmt.Println(term.Resign(ctx))
	// Output:
	// node-1 10 <nil>
	// <nil>
}
