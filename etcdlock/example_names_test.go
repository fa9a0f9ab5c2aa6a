package etcdlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// A certificate manager has an interface of its own for locks: by name, without a value for the hold.
func ExampleNamed() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	locks := etcdlock.NewNamed(src, func(name string, err error) { log.Print("lost ", name, ": ", err) })
	check(locks.Lock(ctx, "example.com"))
	fmt.Println(locks.TryLock(ctx, "example.com"))
	work, end := locks.Context(ctx, "example.com")
	defer end()
	h, _ := locks.Hold("example.com")
	must(h.Txn(work).Then(clientv3.OpPut("certificates/example.com", "...")).Commit())
	check(locks.Unlock(ctx, "example.com"))
	<-work.Done()
	// Output: false <nil>
}

// A scheduler of every machine calls the function at about the same time. One of them does the work.
func ExampleJob() {
	src, stop := sessions()
	defer stop()
	report := etcdlock.Job(
		etcdlock.NewMutex(src, "report", etcdlock.WithMinHold(time.Minute)),
		func(err error) { log.Print("report: ", err) },
		func(context.Context, *etcdlock.Hold) error {
			fmt.Println("the report is written")
			return nil
		})
	report() // in cron: c.AddFunc("@daily", report)
	report() // of another machine, a second late
	// Output: the report is written
}

// A holder that could go on gives way when another process comes.
func ExampleHold_Wanted() {
	src, stop := sessions()
	defer stop()
	ctx := context.Background()
	batch := etcdlock.NewMutex(src, "batch")
	h := must(batch.Lock(ctx))
	next := make(chan *etcdlock.Hold)
	go func() { next <- must(batch.Lock(ctx)) }()
	check(h.Wanted(ctx)) // which a holder does beside its work
	check(h.Unlock(ctx))
	fmt.Println((<-next).Token() > h.Token())
	// Output: true
}
