package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// exampleTest is what an example has for a testing.T.
type exampleTest struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

func (t *exampleTest) Helper()                   {}
func (t *exampleTest) Failed() bool              { return false }
func (t *exampleTest) Context() context.Context  { return t.ctx }
func (t *exampleTest) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *exampleTest) Fatal(args ...any)         { log.Panic(args...) }
func (t *exampleTest) Fatalf(f string, a ...any) { log.Panicf(f, a...) }
func (t *exampleTest) Errorf(f string, a ...any) { log.Panicf(f, a...) }

// inTest runs f as a test function is run. In a test of one's own, t is the testing.T that it gets.
func inTest(f func(t testing.TB)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t := &exampleTest{ctx: ctx}
	defer func() {
		for len(t.cleanups) > 0 {
			last := len(t.cleanups) - 1
			t.cleanups[last]()
			t.cleanups = t.cleanups[:last]
		}
	}()
	defer cancel()
	f(t)
}

// An update of the cluster: one member after the other is stopped and comes back.
func ExampleMember_Stop() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		client := cluster.Client(t)
		for _, m := range cluster.Members() {
			m.Stop() // as an operator does: the leadership is handed over first
			if _, err := client.Put(t.Context(), m.Name(), "was down"); err != nil {
				t.Fatal(err)
			}
			if err := m.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := client.Get(t.Context(), "m", clientv3.WithPrefix(), clientv3.WithCountOnly())
		fmt.Println(answer.Count, err)
	})
	// Output: 3 <nil>
}

func ExampleMember_Kill() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		old := cluster.Leader()
		old.Kill() // without a word to anybody
		leader, err := cluster.WaitLeader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("another leader:", leader != old)
	})
	// Output: another leader: true
}

// A leader that is cut off from the others, but not from its clients, serves what is out of date.
func ExampleMember_Isolate() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		old := cluster.Leader()
		old.Isolate()
		leader, err := cluster.WaitLeader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leader.Client(t).Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}

		client := old.Client(t)
		stale, err := client.Get(t.Context(), "k", clientv3.WithSerializable())
		if err != nil {
			t.Fatal(err)
		}
		old.Heal()
		fresh, err := client.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(stale.Count, fresh.Count)
	})
	// Output: 0 1
}

func ExampleCluster_MoveLeader() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		for _, m := range cluster.Members() {
			if err := cluster.MoveLeader(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			fmt.Println(m.Name(), "leads")
		}
	})
	// Output:
	// m0 leads
	// m1 leads
	// m2 leads
}

// A watch that continues where it stopped may find that its revision is compacted.
func ExampleCluster_Compact() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		client := cluster.Client(t)
		first, err := client.Put(t.Context(), "k", "1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), "k", "2"); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer := <-client.Watch(t.Context(), "k", clientv3.WithRev(first.Header.Revision))
		fmt.Println(errors.Is(answer.Err(), rpctypes.ErrCompacted))
	})
	// Output: true
}

// The server inside does whatever there is no method for.
func ExampleMember_Server() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		server := cluster.Leader().Server()
		fmt.Println("database below a megabyte:", server.Backend().Size() < 1<<20)
	})
	// Output: database below a megabyte: true
}

// The machines are exchanged one after the other, while a client works.
func ExampleCluster_AddMember() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		client := cluster.Client(t)
		for _, old := range cluster.Members() {
			added, err := cluster.AddMember(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Sync(t.Context()); err != nil { // it asks for the members' addresses
				t.Fatal(err)
			}
			if err := old.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = client.Get(t.Context(), "k") // tried again where the removed member has ended it
			fmt.Println(added.Name(), "for", old.Name(), err)
		}
	})
	// Output:
	// m3 for m0 <nil>
	// m4 for m1 <nil>
	// m5 for m2 <nil>
}

// The connections are reset, and the client does not get in until it is over.
func ExampleLink_Cut() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithSize(3))
		client, link := cluster.Link(t)

		link.Cut(cluster.Members()[0])
		_, err := client.Get(t.Context(), "k")
		fmt.Println("two of three:", err)

		link.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = client.Get(ctx, "k")
		fmt.Println("none of three:", err == nil)

		link.Heal()
		_, err = client.Get(t.Context(), "k")
		fmt.Println("healed:", err)
	})
	// Output:
	// two of three: <nil>
	// none of three: false
	// healed: <nil>
}

// Far away: half a second to etcd, and half a second back.
func ExampleLink_Delay() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		client, link := cluster.Link(t)
		if _, err := client.Get(t.Context(), "k"); err != nil { // it is connected
			t.Fatal(err)
		}

		link.Delay(time.Second / 2)
		began := time.Now()
		_, err := client.Get(t.Context(), "k")
		fmt.Println(time.Since(began).Round(100*time.Millisecond), err)
	})
	// Output: 1s <nil>
}

// What was written is there the next time.
func ExampleWithDir() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for range 3 {
		inTest(func(t testing.TB) {
			client := embedtest.Start(t, embedtest.WithDir(dir)).Client(t)
			answer, err := client.Put(t.Context(), "starts", "again", clientv3.WithPrevKV())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("for the first time:", answer.PrevKv == nil)
		})
	}
	// Output:
	// for the first time: true
	// for the first time: false
	// for the first time: false
}

// As in production, as far as one process can tell: the disk is waited for, and a lease lives for 2 s at least.
func ExampleOption() {
	inTest(func(t testing.TB) {
		production := []embedtest.Option{embedtest.WithFsync(), embedtest.WithRealTicks()}
		lease, err := embedtest.Start(t, production...).Client(t).Grant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(lease.TTL)
	})
	// Output: 2
}

// The end of a test that failed shows it by itself.
func ExampleCluster_Log() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t)
		fmt.Println(strings.Contains(cluster.Log(), "became leader"))
	})
	// Output: true
}
