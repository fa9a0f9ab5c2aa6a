package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// etcd has run out of space, until an operator has made some.
func ExampleCluster_RaiseAlarm() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		if err := cluster.RaiseAlarm(t.Context(), etcdserverpb.AlarmType_NOSPACE); err != nil {
			t.Fatal(err)
		}
		_, err := client.Put(t.Context(), "k", "v")
		fmt.Println("no space:", errors.Is(err, rpctypes.ErrNoSpace))

		if err := cluster.DisarmAlarms(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = client.Put(t.Context(), "k", "v")
		fmt.Println("disarmed:", err)
	})
	// Output:
	// no space: true
	// disarmed: <nil>
}

// After a disaster the operator restores last night's snapshot.
func ExampleCluster_Restore() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		client := cluster.Client(t)
		if _, err := client.Put(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		snapshot, err := cluster.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		newer, err := client.Put(t.Context(), "k", "new")
		if err != nil {
			t.Fatal(err)
		}

		if err := cluster.Restore(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("value:", string(answer.Kvs[0].Value))
		fmt.Println("the revision went back:", answer.Header.Revision < newer.Header.Revision)
	})
	// Output:
	// value: old
	// the revision went back: true
}

// Somebody installed etcd anew, with the old token or with another one.
func ExampleCluster_Wipe() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		for _, options := range [][]embedtest.RestoreOption{nil, {embedtest.NewClusterID()}} {
			before, err := client.Put(t.Context(), "k", "v")
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.Wipe(t.Context(), options...); err != nil {
				t.Fatal(err)
			}
			after, err := client.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			same := after.Header.ClusterId == before.Header.ClusterId
			fmt.Println("keys:", after.Count, "revision:", after.Header.Revision, "same cluster:", same)
		}
	})
	// Output:
	// keys: 0 revision: 1 same cluster: true
	// keys: 0 revision: 1 same cluster: false
}

// Data that took long to make are there at once in another test's cluster.
func ExampleSnapshot() {
	var catalogue *embedtest.Snapshot
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		for i := range 100 {
			if _, err := client.Put(t.Context(), fmt.Sprint("items/", i), "v"); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if catalogue, err = cluster.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		if err := cluster.Restore(t.Context(), catalogue); err != nil {
			t.Fatal(err)
		}
		answer, err := cluster.Client(t).Get(t.Context(), "items/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(answer.Count, "items")
	})
	// Output: 100 items
}

// An answer is lost, so the client cannot know whether its write took effect. The history tells.
func ExampleCluster_Record() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		client, history := cluster.Client(t), cluster.Record()

		lost := cluster.LoseReply("Put", embedtest.Once())
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = lost.Wait(ctx)
			cancel()
		}()
		_, err := client.Put(ctx, "orders/1", "paid")
		fmt.Println("answer:", err)

		if _, err := history.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		changes, err := history.Changes(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changes {
			for _, event := range change.Events {
				fmt.Println("revision", change.Revision, event.Type, string(event.Kv.Key), string(event.Kv.Value))
			}
		}
	})
	// Output:
	// answer: context canceled
	// revision 2 PUT orders/1 paid
}

// How long a key existed. What the code under test compacts meanwhile is recorded already.
func ExampleHistory() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client, history := cluster.Client(t), cluster.Record()
		if _, err := client.Put(t.Context(), "lock", "mine"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Delete(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		if _, err := history.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(t.Context(), history.Revision()); err != nil {
			t.Fatal(err)
		}
		history.Stop()

		changes, err := history.Changes(0)
		if err != nil {
			t.Fatal(err)
		}
		held := changes[1].Seen.Sub(changes[0].Seen)
		fmt.Println(len(changes), "changes, held for less than a minute:", held < time.Minute)
	})
	// Output: 2 changes, held for less than a minute: true
}
