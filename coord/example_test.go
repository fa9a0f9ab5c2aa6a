package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// sessions returns sessions of an etcd to show things on.
func sessions() (*session.Keeper, func()) {
	cluster, err := embedtest.Open()
	check(err)
	client, err := cluster.NewClient()
	check(err)
	keeper := session.Keep(client)
	return keeper, func() { _, _, _ = keeper.Close(context.Background()), client.Close(), cluster.Close() }
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func ExampleGroup_Join() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	workers := coord.NewGroup(src, "workers")

	m, err := workers.Join(ctx, "host-1", "10.0.0.1:8080")
	if errors.Is(err, coord.ErrIDTaken) {
		log.Fatal("another process is host-1")
	}
	check(err)
	peers, err := workers.Members(ctx)
	check(err)
	for _, p := range peers {
		fmt.Println(workers.Name(), p.ID, p.Value, p.Token == m.Token())
	}

	check(m.Set(ctx, "10.0.0.1:9090"))
	check(m.Leave(ctx))
	<-m.Done()
	fmt.Println(m.ID(), m.Err(), "/", context.Cause(m.Context()))
	// Output:
	// workers host-1 10.0.0.1:8080 true
	// host-1 etcdlock: unlocked / etcdlock: unlocked
}

func ExampleGroup_Observe() {
	src, stop := sessions()
	defer stop()
	ctx, leave := context.WithCancel(context.Background())
	workers := coord.NewGroup(src, "workers", coord.WithNamespace("myservice"))
	kept := make(chan error)
	go func() { kept <- workers.Keep(ctx, "host-1", "10.0.0.1:8080") }() // joins again after a loss

	for peers, err := range workers.Observe(context.Background()) {
		check(err)
		if len(peers) == 1 {
			fmt.Println(peers[0].ID, "is at", peers[0].Value)
			break
		}
	}
	leave()
	fmt.Println(<-kept)
	// Output:
	// host-1 is at 10.0.0.1:8080
	// keep "workers": context canceled
}

func ExampleShards_Run() {
	src, stop := sessions()
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	options := []coord.Option{coord.WithSettle(100 * time.Millisecond), coord.WithWeight(2)}
	partitions := coord.NewShards(src, "orders", 4, options...)
	working := make(chan etcdlock.Token, partitions.Count())
	ran := make(chan error)
	go func() {
		ran <- partitions.Run(ctx, "host-1", func(ctx context.Context, h *etcdlock.Hold, shard int) error {
			working <- h.Token()
			<-ctx.Done() // consume the partition until then
			if errors.Is(context.Cause(ctx), coord.ErrReassigned) {
				log.Print("another member is waiting for ", shard)
			}
			return nil
		})
	}()
	for range partitions.Count() {
		<-working
	}
	owners, err := partitions.Owners(ctx)
	check(err)
	own := owners[partitions.Of("order 4711")]
	fmt.Println(partitions.Name(), own.ID, own.Token > 0)
	end()
	fmt.Println(<-ran)

	for owners, err := range partitions.Observe(context.Background()) {
		check(err)
		fmt.Println(owners[0].Vacant())
		break
	}
	// Output:
	// orders host-1 true
	// run "orders": context canceled
	// true
}

// All members have to declare the same number of shards.
func ExampleCountError() {
	src, stop := sessions()
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	ran := make(chan error)
	working := make(chan struct{}, 4)
	go func() {
		ran <- coord.NewShards(src, "orders", 4, coord.WithSettle(0)).Run(ctx, "old", func(ctx context.Context, _ *etcdlock.Hold, _ int) error {
			working <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	<-working
	err := coord.NewShards(src, "orders", 8).Run(ctx, "new", func(context.Context, *etcdlock.Hold, int) error { return nil })
	var count *coord.CountError
	if errors.As(err, &count) {
		fmt.Println(count.ID, count.Count, count.Other, count.Declared)
	}
	end()
	fmt.Println(<-ran)
	// Output:
	// new 8 old 4
	// run "orders": context canceled
}

// A panic of a work ends the other works, and is passed on.
func ExamplePanicError() {
	src, stop := sessions()
	defer stop()
	defer func() {
		var p *coord.PanicError
		if err, ok := recover().(error); ok && errors.As(err, &p) {
			fmt.Println(p.Shard, p.Value, len(p.Stack) > 0)
		}
	}()
	_ = coord.NewShards(src, "orders", 1, coord.WithSettle(0)).Run(context.Background(), "host-1",
		func(context.Context, *etcdlock.Hold, int) error { panic("no such partition") })
	// Output: 0 no such partition true
}
