package k8slock_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/leaderelection"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// Two replicas of a controller that uses client-go's leader election. The first is told to end, as by SIGTERM, and
// the second takes over when the first has finished its work.
func Example() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()

	replica := func(ctx context.Context, podName string, leads chan<- string) {
		client, err := cluster.NewClient()
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		sessions := session.Keep(client)
		defer sessions.Close(context.Background())

		lock := k8slock.New(sessions, "controller", podName)
		config, err := lock.Config(ctx, leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				term, ok := lock.Term()
				if !ok {
					return
				}
				// etcd refuses the write if the term is over.
				if _, err := term.Txn(ctx).Then(clientv3.OpPut("written-by", podName)).Commit(); err != nil {
					log.Print(err)
					return
				}
				leads <- podName
				<-ctx.Done()
				fmt.Println(podName, "has finished its work")
			},
			OnStoppedLeading: func() {},
		})
		if err != nil {
			log.Fatal(err)
		}
		leaderelection.RunOrDie(ctx, config)
		if err := lock.Close(context.Background()); err != nil { // waits for OnStartedLeading
			log.Print(err)
		}
	}

	leads := make(chan string)
	var running sync.WaitGroup
	defer running.Wait()
	first, terminateFirst := context.WithCancel(context.Background())
	running.Go(func() { replica(first, "controller-0", leads) })
	fmt.Println(<-leads, "leads")

	second, terminateSecond := context.WithCancel(context.Background())
	defer terminateSecond()
	running.Go(func() { replica(second, "controller-1", leads) })
	terminateFirst()
	fmt.Println(<-leads, "leads")
	// Output:
	// controller-0 leads
	// controller-0 has finished its work
	// controller-1 leads
	// controller-1 has finished its work
}
