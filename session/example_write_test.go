package session_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// opened returns a session on an etcd to show things on.
func opened() (*embedtest.Cluster, *session.Session, func()) {
	cluster, client, stop := start()
	s, err := session.New(context.Background(), client)
	if err != nil {
		log.Fatal(err)
	}
	return cluster, s, func() { _ = s.Close(context.Background()); stop() }
}

// Etcd is busy for a moment. That is not the business of who writes a key that lives as long as
// the session.
func ExampleSession_Call() {
	cluster, s, stop := opened()
	defer stop()
	cluster.Refuse("Put", rpctypes.ErrGRPCRequestTooManyRequests, embedtest.Times(2))
	attempts := 0
	err := s.Call(context.Background(), func(ctx context.Context) error {
		attempts++
		_, err := s.Client().Put(ctx, "services/mail", "10.0.0.7", clientv3.WithLease(s.Lease()))
		return err
	})
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}

// What goes out together saves etcd requests. Where it must not take effect at the same revision,
// because that is the order in line, say, it is kept apart.
func ExampleSession_Commit() {
	_, s, stop := opened()
	defer stop()
	var line [20]int64
	var arrivals sync.WaitGroup
	for i := range line {
		arrivals.Go(func() {
			key := fmt.Sprintf("line/%d", i)
			join := session.Transaction{
				If:    []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				Then:  []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))},
				Else:  []clientv3.Op{clientv3.OpGet(key)}, // it is there already, if the answer was lost
				Apart: "line/",

				Likely: true, // nobody else writes this key
			}
			answer, doubts, err := s.Commit(context.Background(), join)
			switch {
			case err != nil:
				log.Print(err, ", and may have joined: ", doubts > 0)
			case answer.Succeeded:
				line[i] = answer.Header.Revision
			default:
				line[i] = answer.Responses[0].GetResponseRange().Kvs[0].CreateRevision
			}
		})
	}
	arrivals.Wait()
	places := make(map[int64]bool)
	for _, revision := range line {
		places[revision] = true
	}
	fmt.Println(len(places), "places")

	// What may be long is not for others to wait for.
	all, _, err := s.Commit(context.Background(), session.Transaction{
		Then:  []clientv3.Op{clientv3.OpGet("line/", clientv3.WithPrefix())},
		Alone: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(all.Responses[0].GetResponseRange().Kvs), "in line")

	// Who leaves because the caller's time is over has to leave all the same.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = s.Commit(over, session.Transaction{
		If:     []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("line/0"), "=", line[0])},
		Then:   []clientv3.Op{clientv3.OpDelete("line/0")},
		Likely: true,
		Grace:  true,
	})
	fmt.Println(err)
	// Output:
	// 20 places
	// 20 in line
	// <nil>
}

// An error that leaves open whether the key is there, and one that does not.
func ExampleDoubtful() {
	cluster, client, stop := start()
	defer stop()

	lost := cluster.LoseReply("Put", embedtest.Once())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-lost.Bitten()
		cancel() // nobody wants to know any more
	}()
	_, err := client.Put(ctx, "k", "v")
	fmt.Println(session.Doubtful(err))

	cluster.Refuse("Put", rpctypes.ErrGRPCPermissionDenied)
	_, err = client.Put(context.Background(), "k", "v")
	fmt.Println(session.Doubtful(err))
	// Output:
	// true
	// false
}

// Is there a point in trying again?
func ExamplePassing() {
	fmt.Println(session.Passing(rpctypes.ErrTooManyRequests))
	fmt.Println(session.Passing(rpctypes.ErrPermissionDenied))
	// Output:
	// true
	// false
}

// What a user may not do is not tried again, whatever the client's interceptors make of the answer.
func ExampleIsAnswer() {
	err := fmt.Errorf("gateway: %w", rpctypes.ErrGRPCPermissionDenied)
	fmt.Println(errors.Is(err, rpctypes.ErrPermissionDenied))
	fmt.Println(session.IsAnswer(err, rpctypes.ErrPermissionDenied))
	// Output:
	// false
	// true
}

// The caller has given up, and what it leaves behind is removed all the same.
func ExampleGrace() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		client := embedtest.Start(t, embedtest.WithVirtualTime()).Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := client.Put(ctx, "half", "done"); err != nil {
			t.Fatal(err)
		}
		cancel()

		cleaning, end := session.Grace(ctx)
		defer end()
		_, err := client.Delete(cleaning, "half")
		fmt.Println(ctx.Err(), "|", err)
	})
	// Output: context canceled | <nil>
}

// A key is removed behind its user's back, and its name is used again when that is certain.
func ExampleSession_Claim() {
	_, s, stop := opened()
	defer stop()
	ctx := context.Background()
	const prefix = "tickets/"

	a, b := s.Claim(prefix), s.Claim(prefix)
	fmt.Println(a, b)
	key := fmt.Sprintf("%s%x-%d", prefix, s.Lease(), a) // nobody else's
	answer, err := s.Client().Put(ctx, key, "", clientv3.WithLease(s.Lease()))
	if err != nil {
		log.Fatal(err)
	}

	gone := make(chan struct{})
	s.Discard(key, answer.Header.Revision, func() {
		s.Free(prefix, a)
		close(gone)
	})
	<-gone
	fmt.Println(s.Claim(prefix), s.Claim(prefix))
	// Output:
	// 0 1
	// 0 2
}

// A notice stays for a moment after whoever wrote it has moved on.
func ExampleSession_DiscardAfter() {
	_, s, stop := opened()
	defer stop()
	answer, err := s.Client().Put(context.Background(), "notice", "closing soon", clientv3.WithLease(s.Lease()))
	if err != nil {
		log.Fatal(err)
	}
	began, gone := time.Now(), make(chan time.Time, 1)
	s.DiscardAfter(100*time.Millisecond, "notice", answer.Header.Revision, func() { gone <- time.Now() })
	fmt.Println((<-gone).Sub(began) >= 100*time.Millisecond)
	// Output: true
}

// A watch that does not begin in time is on a stream that may be silent. The next one is on another.
func ExampleStreams() {
	cluster, client, stop := start()
	defer stop()
	cluster.Hold("Watch", embedtest.Once())
	var streams session.Streams
	for {
		ctx, cancel := context.WithCancel(context.Background())
		ctx, number := streams.WatchContext(ctx)
		late := time.AfterFunc(100*time.Millisecond, cancel)
		_, created := <-client.Watch(ctx, "k", clientv3.WithCreatedNotify())
		if created && late.Stop() {
			fmt.Println("watching on another stream:", number > 0)
			cancel()
			return
		}
		streams.LeaveStream(number)
	}
	// Output: watching on another stream: true
}

// Who waits for the same key time and again keeps the watch instead of starting another.
func ExampleSession_Watch() {
	_, s, stop := opened()
	defer stop()
	ctx := context.Background()
	for range 3 {
		if _, err := s.Client().Put(ctx, "busy", ""); err != nil {
			log.Fatal(err)
		}
		w, err := s.Watch(ctx, 5*time.Second, "end of busy", "busy", clientv3.WithFilterPut())
		if err != nil {
			log.Fatal(err)
		}
		if _, err := s.Client().Delete(ctx, "busy"); err != nil {
			log.Fatal(err)
		}
		select {
		case response := <-w.Events:
			if response.Err() != nil {
				log.Fatal(response.Err())
			}
			end := response.Events[0].Kv.ModRevision
			fmt.Println("watching from", w.From, "again:", w.Kept, "deleted at", end)
			w.Keep(end)
		case <-time.After(10 * time.Second):
			w.Stop()
			s.LeaveStream(w.Stream) // it may be silent
		}
	}
	// Output:
	// watching from 2 again: false deleted at 3
	// watching from 3 again: true deleted at 5
	// watching from 5 again: true deleted at 7
}

// A read of very many keys is no reason to have etcd answer hundreds of them at the same time.
func ExampleSession_InTurn() {
	_, s, stop := opened()
	defer stop()
	ctx := context.Background()
	err := s.InTurn(ctx, func() error {
		all, err := s.Client().Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil {
			fmt.Println(len(all.Kvs), "keys")
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 0 keys
}

// A thousand goroutines that want to know the same thing at the same moment ask once, or a few times.
func ExampleGather() {
	_, s, stop := opened()
	defer stop()
	count := func(ctx context.Context, callers int) (int64, error) {
		answer, err := s.Client().Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return answer.Count, nil
	}
	keys, err := session.Gather(context.Background(), s, "example: how many keys are there?", count)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keys, "keys")
	// Output: 0 keys
}

// Requests wait for a connection. What keeps it from coming is told by the error.
func ExampleExplain() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = client.Get(ctx, "orders")
	fmt.Println(err)
	fmt.Println(session.Explain(client, err))
	// Output:
	// context deadline exceeded
	// context deadline exceeded (connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused")
}
