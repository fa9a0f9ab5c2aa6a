package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdlock/locks/embedtest"
)

// In a test, embedtest.Start and Cluster.Client take the testing.T and clean up
// by themselves.
func Example() {
	ctx := context.Background()
	cluster, err := embedtest.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	if _, err := client.Put(ctx, "greeting", "hello"); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := client.Get(ctx, "greeting")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer.Kvs[0].Value)
	// Output: hello
}

// A write whose answer is lost was made all the same.
func ExampleCluster_LoseReply() {
	cluster, err := embedtest.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	cluster.LoseReply("Put", embedtest.Once())
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = client.Put(ctx, "k", "v")
	fmt.Println("the client heard nothing:", errors.Is(err, context.DeadlineExceeded))

	answer, err := client.Get(context.Background(), "k")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("but etcd has %s = %s\n", answer.Kvs[0].Key, answer.Kvs[0].Value)
	// Output:
	// the client heard nothing: true
	// but etcd has k = v
}

// A black hole between one client and the cluster concerns nobody else.
func ExampleLink() {
	cluster, err := embedtest.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	client, link, err := cluster.NewLink()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer link.Close()
	defer client.Close()

	link.Blackhole()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = client.Get(ctx, "k")
	fmt.Println("silence:", errors.Is(err, context.DeadlineExceeded))

	link.Heal()
	_, err = client.Get(context.Background(), "k")
	fmt.Println("healed:", err == nil)
	// Output:
	// silence: true
	// healed: true
}
