package fairqueue_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// A program with etcd's own package stands in the same queue. It would wait for any key below the prefix, so there
// must be nothing but tickets.
func ExampleWithOtherPrograms() {
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
	ctx := context.Background()
	s, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	ticket, err := fairqueue.New(s, "orders", fairqueue.WithOtherPrograms()).Join(ctx, fairqueue.Exclusive)
	if err != nil {
		log.Fatal(err)
	}

	theirs, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer theirs.Close()
	mutex := concurrency.NewMutex(theirs, "orders")
	fmt.Println(mutex.TryLock(ctx))
	if err := ticket.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(mutex.TryLock(ctx))
	keys, err := client.Get(ctx, "orders/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keys.Count, "key")
	// Output:
	// mutex: Locked by another session
	// <nil>
	// 1 key
}
