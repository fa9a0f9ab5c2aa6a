package concurrency_test

import (
	"context"
	"fmt"
	"log"

	"github.com/etcdlock/locks/concurrency"
	"github.com/etcdlock/locks/embedtest"
)

// The program is one for etcd's package, but for its import.
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
		fmt.Println("cannot acquire lock for s2, as it is locked in another session")
	}
	if err := m1.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released lock for s1")
	if err := m2.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired lock for s2")
	// Output:
	// acquired lock for s1
	// cannot acquire lock for s2, as it is locked in another session
	// released lock for s1
	// acquired lock for s2
}
