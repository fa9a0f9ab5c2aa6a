package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// start returns a session on an etcd for examples, and a context that bounds them.
func start() (context.Context, *session.Session, func()) {
	cluster, err := embedtest.Open()
	check(err)
	client, err := cluster.NewClient()
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s, err := session.New(ctx, client)
	check(err)
	return ctx, s, func() {
		_ = s.Close(ctx)
		cancel()
		_ = client.Close()
		_ = cluster.Close()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A reader waits in line behind a writer.
func Example() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "printer", fairqueue.Options{Label: "example"})

	writer, err := queue.Join(ctx, fairqueue.Exclusive)
	check(err)
	check(writer.Wait(ctx)) // nothing in the way: no request
	if _, err := queue.TryJoin(ctx, fairqueue.Shared); errors.Is(err, fairqueue.ErrBusy) {
		fmt.Println("busy")
	}

	reader, err := queue.Join(ctx, fairqueue.Shared)
	check(err)
	entries, _, err := queue.Entries(ctx)
	check(err)
	for _, e := range entries {
		fmt.Println(e.Mode, e.Owner.Label)
	}

	check(writer.Leave(ctx))
	check(reader.Wait(ctx))
	fmt.Println("the reader has a higher token:", reader.Revision() > writer.Revision())
	check(reader.Leave(ctx))
	// Output:
	// busy
	// exclusive example
	// shared example
	// the reader has a higher token: true
}

// A transfer between two accounts takes both at one revision, so two of them cannot wait for each other.
func ExampleJoinN() {
	ctx, s, stop := start()
	defer stop()
	both, err := fairqueue.JoinN(ctx, s, 2,
		fairqueue.Place{Queue: fairqueue.New(s, "account/7", fairqueue.Options{}), Mode: fairqueue.Exclusive},
		fairqueue.Place{Queue: fairqueue.New(s, "account/9", fairqueue.Options{}), Mode: fairqueue.Exclusive})
	check(err)
	check(both.Wait(ctx))
	// The write takes effect only while both are owned.
	answer, err := s.Client().Txn(ctx).If(both.Guards()...).
		Then(clientv3.OpPut("balance/7", "90"), clientv3.OpPut("balance/9", "110")).Commit()
	check(err)
	fmt.Println("written:", answer.Succeeded)
	check(both.Leave(ctx))
	// Output: written: true
}

// Three downloads at a time, of which a large one counts as two.
func ExampleQueue_JoinPermits() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "downloads", fairqueue.Options{})
	large, err := queue.JoinPermits(ctx, 2, 3)
	check(err)
	check(large.Wait(ctx))
	_, err = queue.TryPermits(ctx, 2, 3)
	fmt.Println("another large one:", errors.Is(err, fairqueue.ErrBusy))
	_, err = queue.TryPermits(ctx, 1, 3)
	fmt.Println("a small one:", err)
	// Output:
	// another large one: true
	// a small one: <nil>
}
