package session_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
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

// A service tells where it can be found for as long as it lives, be it on one session or on a
// Keeper's.
func ExampleSource() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	register := func(source session.Source, name string) (*session.Session, error) {
		s, err := source.Session(ctx)
		if err != nil {
			return nil, err
		}
		_, err = s.Client().Put(ctx, "services/"+name, "10.0.0.7", clientv3.WithLease(s.Lease()))
		return s, err
	}

	one, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	keeper := session.Keep(client)
	defer keeper.Close(ctx)
	for name, source := range map[string]session.Source{"billing": one, "mail": keeper} {
		if _, err := register(source, name); err != nil {
			log.Fatal(err)
		}
	}
	_ = one.Close(ctx)
	_, err = register(one, "billing")
	fmt.Println(errors.Is(err, session.ErrClosed))

	found, err := client.Get(ctx, "services/", clientv3.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	for _, service := range found.Kvs {
		fmt.Println(string(service.Key))
	}
	// Output:
	// true
	// services/mail
}

// What needs the session ends with it.
func ExampleSession_Context() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	s, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	stopped := make(chan error)
	go func(ctx context.Context) {
		<-ctx.Done() // work until then
		stopped <- context.Cause(ctx)
	}(s.Context())

	if _, err := client.Revoke(ctx, s.Lease()); err != nil { // an operator's mistake
		log.Fatal(err)
	}
	_ = s.Renew(ctx)                                   // or the next renewal
	fmt.Println(errors.Is(<-stopped, session.ErrLost)) // the cause says more
	// Output: true
}

// Before a step that takes time there is a look at how long the lease can be trusted.
func ExampleSession_Deadline() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	s, err := session.New(ctx, client, session.WithTTL(time.Hour), session.WithMargin(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	if time.Until(s.Deadline()) < 10*time.Minute {
		if err := s.Renew(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(time.Until(s.Deadline()).Round(time.Minute))
	// Output: 59m0s
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

// Only what is wrong is logged.
func ExampleWithLogger() {
	_, client, stop := start()
	defer stop()
	ctx := context.Background()
	withoutDetails := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return a
		}
		return slog.Attr{}
	}}
	s, err := session.New(ctx, client, session.WithLogger(slog.New(slog.NewTextHandler(os.Stdout, withoutDetails))))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Revoke(ctx, s.Lease()); err != nil {
		log.Fatal(err)
	}
	_ = s.Renew(ctx)
	_ = s.Close(ctx)
	// Output: level=ERROR msg="session lost"
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
