package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// A reader waits in line behind a writer.
func Example() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	s, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	queue := fairqueue.New(s, "printer", fairqueue.WithLabel("example"))

	writer, err := queue.Join(ctx, fairqueue.Exclusive)
	if err != nil {
		log.Fatal(err)
	}
	if err := writer.Wait(ctx); err != nil { // nothing in the way: no request
		log.Fatal(err)
	}
	if _, err := queue.TryJoin(ctx, fairqueue.Shared); errors.Is(err, fairqueue.ErrBusy) {
		fmt.Println("busy")
	}

	reader, err := queue.Join(ctx, fairqueue.Shared)
	if err != nil {
		log.Fatal(err)
	}
	entries, err := queue.Entries(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for place, e := range entries {
		fmt.Println(place, e.Mode, e.Owner.Label)
	}

	if err := writer.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	if err := reader.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the reader has a higher token:", reader.Revision() > writer.Revision())
	if err := reader.Leave(ctx); err != nil {
		log.Fatal(err)
	}

	// Output:
	// busy
	// 0 exclusive example
	// 1 shared example
	// the reader has a higher token: true
}
