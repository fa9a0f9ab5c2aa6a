package gocronlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlock "github.com/etcdlock/locks/adapters/gocron"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

func Example() {
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

	locker := gocronlock.NewLocker(sessions, gocronlock.WithMinHold(func(string) time.Duration { return 30 * time.Second }))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() {
		defer close(done)
		h, ok := locker.Hold("report")
		fmt.Println("the report, under the lock:", ok && h.Err() == nil)
	}), gocron.WithName("report"))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the report, under the lock: true
}
