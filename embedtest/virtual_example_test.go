package embedtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// In a test of one's own, t is the testing.T that the test function gets.
func ExampleWithVirtualTime() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		client := cluster.Client(t)

		began := time.Now()
		lease, _ := client.Grant(t.Context(), 3*60*60)
		_, _ = client.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID))
		watch := client.Watch(t.Context(), "k")

		<-watch // the key is gone with its lease
		fmt.Println(time.Since(began).Round(time.Second), "later")
	})
	// Output: 3h0m0s later
}
