package session_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// A caller gives up a request that creates a key. The session begins an epoch in which that request
// cannot take effect any more.
func ExampleSession_Epoch() {
	cluster, s, stop := opened()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	epoch := s.Epoch("locks/!/epoch", "locks/orders/!/epoch")
	freed := make(chan struct{})
	held := cluster.Hold("Txn", embedtest.Once())
	go func() {
		<-held.Bitten()
		cancel() // while the request is on its way
	}()
	if err := s.Admit(ctx); err != nil { // not while very many calls have been given up
		log.Fatal(err)
	}
	create := session.Transaction{
		If:    []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("locks/orders/a"), "=", 0)},
		Then:  []clientv3.Op{clientv3.OpPut("locks/orders/a", "", clientv3.WithLease(s.Lease()))},
		Else:  []clientv3.Op{epoch.Read()},
		Epoch: epoch,
		Late: func(*clientv3.TxnResponse, int, error) { // if it shared a request, which goes on
			epoch.Doubt("locks/orders/a", func() { close(freed) })
		},
	}
	before := epoch.Now()
	_, doubts, err := s.Commit(ctx, create)
	fmt.Println(err, session.InFlight(err), doubts)
	if !session.InFlight(err) {
		epoch.Doubt("locks/orders/a", func() { close(freed) })
	}
	<-freed
	held.Heal() // too late

	create.Epoch = nil // a program that does not know the epoch would be one of an earlier epoch for ever
	create.If = append(create.If, clientv3.Compare(clientv3.ModRevision("locks/!/epoch"), "=", before))
	answer, _, err := s.Commit(context.Background(), create)
	if err != nil {
		log.Fatal(err)
	}
	moved, err := epoch.Moved(context.Background(), before, answer.Responses[0].GetResponseRange())
	fmt.Println(answer.Succeeded, moved, err)
	fmt.Println(epoch.Checked(), epoch.Denies(context.Background()))
	// Output:
	// context canceled false 1
	// false true <nil>
	// true false
}
