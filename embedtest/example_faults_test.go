package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// The first writer's request is on its way while the second one's overtakes it.
func ExampleCluster_Hold() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)

		held := cluster.Hold("Put", embedtest.Once())
		answered := make(chan error)
		go func() {
			_, err := client.Put(t.Context(), "k", "first")
			answered <- err
		}()
		if err := held.Wait(t.Context()); err != nil { // it has come in, and is kept back
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), "k", "second"); err != nil {
			t.Fatal(err)
		}
		held.Heal()
		if err := <-answered; err != nil {
			t.Fatal(err)
		}

		answer, err := client.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s came last\n", answer.Kvs[0].Value)
	})
	// Output: first came last
}

// A client with some patience, and an etcd that needs longer: it does what it was asked for all
// the same. In virtual time the waiting takes none.
func ExampleCluster_Delay() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		client := cluster.Client(t)
		cluster.Delay("Put", 3*time.Second)

		began := time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Put(impatient, "k", "v")
		fmt.Println(errors.Is(err, context.DeadlineExceeded), time.Since(began).Round(time.Second))

		time.Sleep(5 * time.Second)
		answer, err := client.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("written:", answer.Count == 1)
	})
	// Output:
	// true 1s
	// written: true
}

// Unlike a lost reply, a lost request has done nothing.
func ExampleCluster_LoseRequest() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)

		fault := cluster.LoseRequest("Put")
		ctx, giveUp := context.WithCancel(t.Context())
		go func() {
			<-fault.Bitten()
			giveUp()
		}()
		_, err := client.Put(ctx, "k", "v")
		fmt.Println(errors.Is(err, context.Canceled), fault.Bites())

		answer, err := client.Get(t.Context(), "k")
		fmt.Println(answer.Count, err)
	})
	// Output:
	// true 1
	// 0 <nil>
}

// How does one's own code take it if etcd is too busy, twice?
func ExampleCluster_Refuse() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)

		cluster.Refuse("Put", rpctypes.ErrGRPCRequestTooManyRequests, embedtest.Times(2))
		attempts := 1
		for ; ; attempts++ {
			_, err := client.Put(t.Context(), "k", "v")
			if err == nil {
				break
			}
			if !errors.Is(err, rpctypes.ErrTooManyRequests) {
				t.Fatal(err)
			}
		}
		fmt.Println(attempts, "attempts")
	})
	// Output: 3 attempts
}

// The owner of the lease has to believe that it is over. It is not.
func ExampleCluster_DropKeepAlives() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		client := cluster.Client(t)
		lease, err := client.Grant(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(8 * time.Second)
		cluster.DropKeepAlives()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client.KeepAliveOnce(ctx, lease.ID)
		fmt.Println("no answer:", err != nil)

		time.Sleep(5 * time.Second)
		left, err := client.TimeToLive(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("after 14 s of 10:", left.TTL, "s left")
	})
	// Output:
	// no answer: true
	// after 14 s of 10: 4 s left
}

// Code that counts on being told of every change misses one here.
func ExampleCluster_SwallowWatchEvents() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		watch := client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		<-watch // it is there

		swallowed := cluster.SwallowWatchEvents(embedtest.Once())
		if _, err := client.Put(t.Context(), "k", "1"); err != nil {
			t.Fatal(err)
		}
		if err := swallowed.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), "k", "2"); err != nil {
			t.Fatal(err)
		}
		for _, event := range (<-watch).Events {
			fmt.Printf("%s = %s\n", event.Kv.Key, event.Kv.Value)
		}
	})
	// Output: k = 2
}

// What bites a request to one key leaves the others alone.
func ExampleWhen() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		toKey := func(key string) embedtest.FaultOption {
			return embedtest.When(func(message any) bool {
				request, ok := message.(*etcdserverpb.PutRequest)
				return ok && string(request.Key) == key
			})
		}

		cluster.Refuse("Put", rpctypes.ErrGRPCNoSpace, toKey("b"))
		for _, key := range []string{"a", "b", "c"} {
			_, err := client.Put(t.Context(), key, "v")
			fmt.Println(key, err)
		}
	})
	// Output:
	// a <nil>
	// b etcdserver: mvcc: database space exceeded
	// c <nil>
}

// One of three members is slow; clients of the others do not notice.
func ExampleOn() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		members := cluster.Members()

		slow := cluster.Hold("Range", embedtest.On(members[0]))
		answered := make(chan error)
		client := members[0].Client(t)
		go func() {
			_, err := client.Get(t.Context(), "k")
			answered <- err
		}()
		if err := slow.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := members[1].Client(t).Get(t.Context(), "k")
		fmt.Println("another member:", err)
		slow.Heal()
		fmt.Println("the slow one:", <-answered)
	})
	// Output:
	// another member: <nil>
	// the slow one: <nil>
}

// A test can hold code to what it is said to cost.
func ExampleCluster_Calls() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)

		requests, entries := cluster.Calls("Txn"), cluster.AppliedIndex()
		_, err := client.Txn(t.Context()).Then(clientv3.OpPut("a", "1"), clientv3.OpPut("b", "2")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(cluster.Calls("Txn")-requests, "transaction,", cluster.AppliedIndex()-entries, "raft entry")
	})
	// Output: 1 transaction, 1 raft entry
}
