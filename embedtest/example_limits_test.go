package embedtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/embedtest"
)

// Behind a server that allows two streams on a connection, two watches leave no room for a request.
func ExampleWithConfig() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) {
			cfg.MaxConcurrentStreams = 2
		}))
		client := cluster.Client(t)
		for _, id := range []string{"1", "2"} { // etcd's client opens a stream for each metadata
			ctx := metadata.AppendToOutgoingContext(t.Context(), "request-id", id)
			<-client.Watch(ctx, "k", clientv3.WithCreatedNotify())
		}

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := client.Get(ctx, "k")
		fmt.Println("there was room:", err == nil)
	})
	// Output: there was room: false
}

// Two watches of one client share a stream.
func ExampleCluster_OpenStreams() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		for range 2 {
			<-client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		}
		fmt.Println(cluster.Calls("Watch"), "watches,", cluster.OpenStreams("Watch"), "stream")
	})
	// Output: 2 watches, 1 stream
}

// A single renewal opens a stream of its own.
func ExampleCluster_StreamsOpened() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		lease, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := client.KeepAliveOnce(t.Context(), lease.ID); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println(cluster.StreamsOpened("LeaseKeepAlive"), "streams opened")
	})
	// Output: 3 streams opened
}
