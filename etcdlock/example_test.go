package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// start returns a client of an etcd to show things on.
func start() (*clientv3.Client, func()) {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { _ = client.Close(); _ = cluster.Close() }
}

func Example() {
	client, stop := start()
	defer stop()
	ctx := context.Background()

	sessions := session.Keep(client)
	defer sessions.Close(ctx)

	orders := etcdlock.NewMutex(sessions, "orders")
	err := etcdlock.Do(ctx, orders, func(ctx context.Context, h *etcdlock.Hold) error {
		// ctx ends if the lock is lost; the write is refused if it was lost unnoticed.
		_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "42")).Commit()
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleMutex_Lock() {
	client, stop := start()
	defer stop()
	sessions := session.Keep(client)
	defer sessions.Close(context.Background())
	orders := etcdlock.NewMutex(sessions, "orders")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h, err := orders.Lock(ctx) // ctx bounds the wait, not the hold
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Name(), h.Token() > 0, h.Err())
	if err := h.Unlock(ctx); errors.Is(err, etcdlock.ErrLost) {
		fmt.Println("somebody else may have been at work, too")
	}
	fmt.Println(h.Err())
	// Output:
	// orders true <nil>
	// etcdlock: unlocked
}

func ExampleMutex_TryLock() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)

	h, err := etcdlock.NewMutex(sessions, "nightly").TryLock(ctx)
	fmt.Println(err)
	_, err = etcdlock.NewMutex(sessions, "nightly").TryLock(ctx)
	fmt.Println(errors.Is(err, etcdlock.ErrBusy), err)
	_ = h.Unlock(ctx)
	// Output:
	// <nil>
	// true trylock "nightly": queue etcdlock/nightly/: etcdlock: busy
}

func ExampleHold_Guard() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	h, err := etcdlock.NewMutex(sessions, "orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	write := func(value string) bool {
		answer, err := client.Txn(ctx).If(h.Guard()).Then(clientv3.OpPut("orders/last", value)).Commit()
		return err == nil && answer.Succeeded
	}
	fmt.Println(write("in time"))
	_ = h.Unlock(ctx)
	fmt.Println(write("too late"))
	// Output:
	// true
	// false
}

// A store that is not etcd keeps a Fence next to the data.
func ExampleFence() {
	var fence etcdlock.Fence
	write := func(token etcdlock.Token) error { return fence.Admit(token) }
	fmt.Println(write(7))
	fmt.Println(write(9)) // the next owner
	fmt.Println(write(7)) // the old one wakes up
	// Output:
	// <nil>
	// <nil>
	// etcdlock: stale token: 7, and 9 has been here
}
