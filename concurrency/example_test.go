package concurrency_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/concurrency"
	"github.com/etcdlock/locks/embedtest"
)

// The examples are etcd's own, but for the import, and for what starts etcd.

// started returns a client of an etcd that ends with it.
func started() (client *clientv3.Client, end func()) {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	if client, err = cluster.NewClient(); err != nil {
		log.Fatal(err)
	}
	return client, func() {
		_ = client.Close()
		_ = cluster.Close()
	}
}

func ExampleMutex_TryLock() {
	client, end := started()
	defer end()

	s1, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s1.Close()
	m1 := concurrency.NewMutex(s1, "/my-lock")
	s2, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s2.Close()
	m2 := concurrency.NewMutex(s2, "/my-lock")

	ctx := context.Background()
	if err := m1.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired lock for s1")
	if err := m2.TryLock(ctx); err == concurrency.ErrLocked { //nolint:errorlint // as users of that package write it
		fmt.Println("cannot acquire lock for s2, as already locked in another session")
	}
	if err := m1.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released lock for s1")
	if err := m2.TryLock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired lock for s2")
	// Output:
	// acquired lock for s1
	// cannot acquire lock for s2, as already locked in another session
	// released lock for s1
	// acquired lock for s2
}

func ExampleMutex_Lock() {
	client, end := started()
	defer end()

	s1, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s1.Close()
	m1 := concurrency.NewMutex(s1, "/my-lock/")
	s2, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s2.Close()
	m2 := concurrency.NewMutex(s2, "/my-lock/")

	if err := m1.Lock(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired lock for s1")
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		if err := m2.Lock(context.Background()); err != nil {
			log.Fatal(err)
		}
	}()
	if err := m1.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released lock for s1")
	<-locked
	fmt.Println("acquired lock for s2")
	// Output:
	// acquired lock for s1
	// released lock for s1
	// acquired lock for s2
}

func ExampleElection_Campaign() {
	client, end := started()
	defer end()

	s1, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s1.Close()
	e1 := concurrency.NewElection(s1, "/my-election/")
	s2, err := concurrency.NewSession(client)
	if err != nil {
		log.Fatal(err)
	}
	defer s2.Close()
	e2 := concurrency.NewElection(s2, "/my-election/")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := e2.Campaign(ctx, "e2"); err != nil {
		log.Fatal(err)
	}
	elected := make(chan struct{})
	go func() {
		defer close(elected)
		if err := e1.Campaign(ctx, "e1"); err != nil {
			log.Fatal(err)
		}
	}()
	fmt.Println("completed first election with", string((<-e2.Observe(ctx)).Kvs[0].Value))
	if err := e2.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	<-elected
	fmt.Println("completed second election with", string((<-e1.Observe(ctx)).Kvs[0].Value))
	// Output:
	// completed first election with e2
	// completed second election with e1
}
