package session_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// start returns an etcd to show things on, and a client of it.
func start() (*embedtest.Cluster, *clientv3.Client, func()) {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	return cluster, client, func() { _ = client.Close(); _ = cluster.Close() }
}

// A service registers its address for as long as its session lives, be it of its own or a Keeper's.
func ExampleSource() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	register := func(source session.Source) error {
		s, err := source.Session(ctx)
		if err != nil {
			return err
		}
		_, err = s.Client().Put(ctx, "services/mail", "10.0.0.7", clientv3.WithLease(s.Lease()))
		return err
	}
	s, err := session.New(ctx, client, session.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(register(s), time.Until(s.Deadline()) > 10*time.Second)
	_ = s.Close(ctx)
	fmt.Println(context.Cause(s.Context()), errors.Is(register(s), session.ErrClosed))
	// Output:
	// <nil> true
	// etcdlock: session closed true
}

// A process that is about to be replaced leaves its keys to the lease, so that its successor has time to start.
func ExampleSession_Abandon() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	s, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Put(ctx, "services/mail", "10.0.0.7", clientv3.WithLease(s.Lease())); err != nil {
		log.Fatal(err)
	}
	s.Abandon()
	answer, err := client.Get(ctx, "services/mail")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Err(), len(answer.Kvs))
	// Output:
	// etcdlock: session closed 1
}

// The network fails: when does a process know that its locks are lost? In virtual time the answer
// is exact, and comes at once.
func ExampleWithClock() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		client, link := cluster.Link(t)
		began := time.Now()
		s, err := session.New(t.Context(), client,
			session.WithClock(func() time.Duration { return time.Since(began) }),
			session.WithTTL(10*time.Second), session.WithMargin(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		link.Blackhole()
		<-s.Done()
		fmt.Println("lost after", time.Since(began).Round(time.Second), "while etcd keeps its keys for", s.TTL())
		link.Heal()
	})
	// Output: lost after 8s while etcd keeps its keys for 10s
}

// An early warning: how close has the session been to its loss?
func ExampleWithOnRenewal() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		began := time.Now()
		keeper := session.Keep(cluster.Client(t), session.WithTTL(30*time.Second),
			session.WithClock(func() time.Duration { return time.Since(began) }),
			session.WithOnRenewal(func(r session.Renewal) {
				fmt.Println("renewed:", r.Lease != clientv3.NoLease && r.Err == nil, "in", r.Took, "with", r.Left, "left")
			}))
		defer keeper.Close(t.Context())
		_, exists := keeper.Current()
		fmt.Println("looking at it has created it:", exists)
		s, err := keeper.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("renewed every", s.TTL()/3, "of", s.TTL()-s.Margin())
		time.Sleep(11 * time.Second)
	})
	// Output:
	// looking at it has created it: false
	// renewed every 10s of 27s
	// renewed: true in 0s with 17s left
}

// A dashboard, and an answer to the next question: why?
func ExampleWithOnChange() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		began := time.Now()
		show := map[session.State]string{
			session.Live:   "all is well",
			session.AtRisk: "start nothing new",
			session.Lost:   "stop",
			session.Closed: "done",
		}
		var last session.Change
		s, err := session.New(t.Context(), cluster.Client(t), session.WithTTL(30*time.Second),
			session.WithClock(func() time.Duration { return time.Since(began) }),
			session.WithOnChange(func(c session.Change) {
				last = c
				fmt.Println(show[c.State])
			}))
		if err != nil {
			t.Fatal(err)
		}

		deaf := cluster.DropKeepAlives()
		time.Sleep(20 * time.Second)
		deaf.Heal()
		time.Sleep(20 * time.Second)
		cluster.DropKeepAlives()
		<-s.Done()
		synctest.Wait()
		fmt.Println(last.Lease == s.Lease(), errors.Is(last.Err, session.ErrLost))
	})
	// Output:
	// start nothing new
	// all is well
	// start nothing new
	// stop
	// true true
}

// Etcd is busy for a moment.
func ExampleRetry() {
	cluster, client, stop := start()
	defer stop()
	cluster.Refuse("Put", rpctypes.ErrGRPCRequestTooManyRequests, embedtest.Times(2))
	attempts := 0
	err := session.Retry(context.Background(), func(ctx context.Context) error {
		attempts++
		_, err := client.Put(ctx, "services/mail", "10.0.0.7")
		return err
	})
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}
