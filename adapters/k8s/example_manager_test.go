package k8slock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// reconcile stands for a program's controllers. As a Runnable it runs on the leader only.
func reconcile(ctx context.Context) error {
	fmt.Println("reconciles")
	<-ctx.Done()
	fmt.Println("has stopped")
	return nil
}

// A manager of controller-runtime. A replica that stands by has filled its caches, so it takes over at once. The
// manager stops its controllers before it gives up the term. After a loss Start returns an error, and the process
// has to exit.
func Example_manager() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sessions := session.Keep(client)
	defer sessions.Close(context.Background())
	ctx, terminate := context.WithCancel(context.Background()) // usually by ctrl.SetupSignalHandler

	lock := k8slock.New(sessions, "controller", "controller-0")
	timings, err := lock.Timings(ctx)
	if err != nil {
		log.Fatal(err)
	}
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{ // usually ctrl.GetConfigOrDie()
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		// They count, although the comment of LeaderElectionResourceLockInterface says that they are ignored.
		LeaseDuration: &timings.LeaseDuration,
		RenewDeadline: &timings.RenewDeadline,
		RetryPeriod:   &timings.RetryPeriod,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		Logger:        logr.Discard(),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Add(manager.RunnableFunc(reconcile)); err != nil {
		log.Fatal(err)
	}
	go func() {
		<-m.Elected()
		terminate()
	}()
	fmt.Println("ended:", m.Start(ctx))
	if err := lock.Close(context.Background()); err != nil {
		log.Print(err)
	}
	// Output:
	// reconciles
	// has stopped
	// ended: <nil>
}

// The same without a Lock: a new manager for each term, in Election.Run. The process outlives a loss, and the end of
// the term reaches the controllers at once. The price: a replica that stands by has no manager, so its caches are
// cold. It lists everything when its term begins. (Controllers need SkipNameValidation, since their names come
// again.)
func Example_managerForEachTerm() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sessions := session.Keep(client)
	defer sessions.Close(context.Background())
	ctx, terminate := context.WithCancel(context.Background())

	terms := 0
	err = etcdlock.NewElection(sessions, "controller").Run(ctx, "controller-0", func(ctx context.Context, t *etcdlock.Term) error {
		m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
			Metrics: metricsserver.Options{BindAddress: "0"},
			Logger:  logr.Discard(),
		})
		if err != nil {
			return err
		}
		if err := m.Add(manager.RunnableFunc(reconcile)); err != nil {
			return err
		}
		go func() {
			<-m.Elected() // a manager without leader election says so when it has started
			if terms++; terms == 1 {
				lose(ctx, client, t)
			} else {
				terminate()
			}
		}()
		return m.Start(ctx)
	})
	fmt.Println("ended:", err)
	// Output:
	// reconciles
	// has stopped
	// reconciles
	// has stopped
	// ended: run "controller": context canceled
}

// lose stands for what ends a term: an operator, here.
func lose(ctx context.Context, client *clientv3.Client, t *etcdlock.Term) {
	if err := etcdlock.ForceRelease(ctx, client, t.Key(), t.Token()); err != nil {
		log.Print(err)
	}
}
