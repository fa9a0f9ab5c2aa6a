package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// exclusively are places in the queues of those names.
func exclusively(source session.Source, names ...string) (places []fairqueue.Place) {
	for _, name := range names {
		places = append(places, fairqueue.Place{Queue: fairqueue.New(source, name), Mode: fairqueue.Exclusive})
	}
	return places
}

// Money goes from one account to another. Nobody who has one of them waits for the other.
func ExampleJoinAll() {
	ctx, s, stop := start()
	defer stop()
	both, err := fairqueue.JoinAll(ctx, s, exclusively(s, "account/7", "account/9")...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("free:", both.Granted())
	if err := both.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// The write counts only while both are owned; elsewhere both.Revision is the fencing token.
	answer, err := both.Session().Client().Txn(ctx).If(both.Guards()...).
		Then(clientv3.OpPut("balance/7", "90"), clientv3.OpPut("balance/9", "110")).Commit()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", answer.Succeeded, both.Revision() < answer.Header.Revision)
	fmt.Println(both.Leave(ctx))
	// Output:
	// free: true
	// written: true true
	// <nil>
}

// Any two of three printers; the one in the middle is busy.
func ExampleJoinAny() {
	ctx, s, stop := start()
	defer stop()
	printers := exclusively(s, "printer/0", "printer/1", "printer/2")
	joined(ctx, printers[1].Queue, fairqueue.Exclusive)

	two, err := fairqueue.JoinAny(ctx, s, 2, printers...)
	if err != nil {
		log.Fatal(err)
	}
	if err := two.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(two.Chosen(), two.Leave(ctx))
	// Output: [0 2] <nil>
}

// If there are not enough, nothing has been written.
func ExampleTryAny() {
	ctx, s, stop := start()
	defer stop()
	printers := exclusively(s, "printer/0", "printer/1", "printer/2")
	two, err := fairqueue.TryAny(ctx, s, 2, printers...)
	if err != nil {
		log.Fatal(err)
	}
	_, err = fairqueue.TryAny(ctx, s, 2, printers...)
	fmt.Println(len(two.Chosen()), errors.Is(err, fairqueue.ErrBusy))
	// Output: 2 true
}

// The whole group waits for one that is in the way of one of its tickets.
func ExampleGroup_Ahead() {
	ctx, s, stop := start()
	defer stop()
	places := exclusively(s, "account/7", "account/9")
	audit := joined(ctx, places[1].Queue, fairqueue.Exclusive)
	both, err := fairqueue.JoinAll(ctx, s, places...)
	if err != nil {
		log.Fatal(err)
	}
	patience, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err = both.Wait(patience)
	owner, ahead, ok := both.Ahead(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ok, ahead, owner.Key == audit.Key())
	// Output: true true 1 true
}

// Half of what one needs is of no use, and would keep others waiting.
func ExampleGroup_Lost() {
	ctx, s, stop := start()
	defer stop()
	places := exclusively(s, "account/7", "account/9")
	both, err := fairqueue.JoinAll(ctx, s, places...)
	if err != nil {
		log.Fatal(err)
	}
	next := joined(ctx, places[1].Queue, fairqueue.Exclusive)
	if _, err := s.Client().Delete(ctx, both.Key()); err != nil { // an operator removes the first ticket
		log.Fatal(err)
	}
	fmt.Println(errors.Is(both.Lost(ctx), session.ErrLost))
	both.Abandon() // the second one, too
	fmt.Println(next.Wait(ctx))
	// Output:
	// true
	// <nil>
}

// A job at two places that must not be done again within a minute.
func ExampleGroup_Linger() {
	ctx, s, stop := start()
	defer stop()
	places := exclusively(s, "backup/a", "backup/b")
	both, err := fairqueue.JoinAll(ctx, s, places...)
	if err != nil {
		log.Fatal(err)
	}
	if err := both.ReleaseAfter(ctx, time.Minute); err != nil {
		log.Fatal(err)
	}
	for _, p := range places {
		_, err := p.Queue.TryJoin(ctx, p.Mode)
		fmt.Println(errors.Is(err, fairqueue.ErrBusy))
	}
	// Output:
	// true
	// true
}

// One transaction carries so much and no more.
func ExampleTooManyError() {
	ctx, s, stop := start()
	defer stop()
	var names []string
	for number := range 200 {
		names = append(names, fmt.Sprintf("account/%d", number))
	}
	_, err := fairqueue.JoinAll(ctx, s, exclusively(s, names...)...)
	var tooMany *fairqueue.TooManyError
	if errors.As(err, &tooMany) {
		fmt.Println(tooMany.Places, "wanted,", tooMany.Limit, "possible")
	}
	// Output: 200 wanted, 127 possible
}
