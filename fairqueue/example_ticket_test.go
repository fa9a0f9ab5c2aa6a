package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// start returns a session on an etcd to show things on, and a context that bounds them.
func start() (context.Context, *session.Session, func()) {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s, err := session.New(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	return ctx, s, func() {
		_ = s.Close(ctx)
		cancel()
		_ = client.Close()
		_ = cluster.Close()
	}
}

// joined puts a ticket into the queue, which its example is not about.
func joined(ctx context.Context, q *fairqueue.Queue, m fairqueue.Mode) *fairqueue.Ticket {
	ticket, err := q.Join(ctx, m)
	if err != nil {
		log.Fatal(err)
	}
	return ticket
}

func ExampleTicket() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "printer")
	first, second := joined(ctx, queue, fairqueue.Exclusive), joined(ctx, queue, fairqueue.Exclusive)

	for _, t := range []*fairqueue.Ticket{first, second} {
		fmt.Println(strings.HasPrefix(t.Key(), "printer/x"), t.Session() == s, t.Granted())
	}
	if err := first.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Left(), second.Wait(ctx))
	// Output:
	// true true true
	// true true false
	// true <nil>
}

// Whoever has been replaced writes nothing, whatever it believes.
func ExampleTicket_Guard() {
	ctx, s, stop := start()
	defer stop()
	ticket := joined(ctx, fairqueue.New(s, "printer"), fairqueue.Exclusive)
	if err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	write := func(page string) bool {
		answer, err := s.Client().Txn(ctx).If(ticket.Guards()...).Then(clientv3.OpPut("page", page)).Commit()
		return err == nil && answer.Succeeded
	}
	fmt.Println(write("1"))
	if err := ticket.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(write("2"))
	// Output:
	// true
	// false
}

// Who was in the way when the wait was over?
func ExampleTicket_Ahead() {
	ctx, s, stop := start()
	defer stop()
	joined(ctx, fairqueue.New(s, "printer", fairqueue.WithLabel("annual report")), fairqueue.Exclusive)
	ticket := joined(ctx, fairqueue.New(s, "printer"), fairqueue.Exclusive)

	patience, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := ticket.Wait(patience)
	owner, ahead, ok := ticket.Ahead(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ok, ahead, owner.Owner.Label)
	// Output: true true 1 annual report
}

// Somebody removes the ticket, and its owner hears of it.
func ExampleTicket_Lost() {
	ctx, s, stop := start()
	defer stop()
	ticket := joined(ctx, fairqueue.New(s, "printer"), fairqueue.Exclusive)
	if _, err := s.Client().Delete(ctx, ticket.Key()); err != nil {
		log.Fatal(err)
	}
	err := ticket.Lost(ctx)
	fmt.Println(errors.Is(err, fairqueue.ErrGone), errors.Is(err, session.ErrLost), s.Err())
	// Output: true true <nil>
}

// The next one has to wait for another minute, even if this process ends before.
func ExampleTicket_Linger() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "hourly")
	ticket := joined(ctx, queue, fairqueue.Exclusive)
	if err := ticket.ReleaseAfter(ctx, time.Minute); err != nil {
		log.Fatal(err)
	}
	_, err := queue.TryJoin(ctx, fairqueue.Exclusive)
	fmt.Println(ticket.Left(), errors.Is(err, fairqueue.ErrBusy))
	// Output: true true
}

// A writer that has written lets readers in, and no other writer.
func ExampleTicket_Share() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "prices")
	writer := joined(ctx, queue, fairqueue.Exclusive)
	if err := writer.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if err := writer.Share(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := queue.TryJoin(ctx, fairqueue.Shared); err != nil {
		log.Fatal(err)
	}
	entries, err := queue.Entries(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Printf("%v %t %q\n", e.Mode, e.Shares(), e.Owner.Mark)
	}
	// Output:
	// exclusive true "shared"
	// shared true ""
}

// An owner that keeps its ticket, to save itself the way to etcd, until somebody else wants it.
func ExampleTicket_Wanted() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "shard")
	kept := joined(ctx, queue, fairqueue.Exclusive)
	if err := kept.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	alone, err := kept.Alone(ctx) // those who stand in line already are not to be kept waiting
	fmt.Println(alone, err)
	given := make(chan error)
	go func() {
		if err := kept.Wanted(ctx); err != nil {
			log.Print(err)
		}
		given <- kept.Leave(ctx)
	}()

	other := joined(ctx, queue, fairqueue.Exclusive)
	fmt.Println(other.Wait(ctx), <-given)
	// Output:
	// true <nil>
	// <nil> <nil>
}

// Who is in line, and who of them owns? It is what "etcdctl get --prefix" shows, too.
func ExampleQueue_Entries() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "printer", fairqueue.WithLabel("annual report"))
	first := joined(ctx, queue, fairqueue.Shared)
	joined(ctx, queue, fairqueue.Exclusive)

	entries, err := queue.Entries(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for i, e := range entries {
		owns := i < fairqueue.Owning(entries, 0)
		fmt.Println(e.Mode, owns, e.Lease == s.Lease(), e.Foreign, e.Key == first.Key(), e.Revision == first.Revision())
	}
	host, err := os.Hostname()
	who := entries[0].Owner
	fmt.Println(who.Host == host, err, who.PID == os.Getpid(), who.Program != "", who.Label, who.Since.IsZero())
	// Output:
	// shared true true false true true
	// exclusive false true false false false
	// true <nil> true true annual report false
}

// One primitive, many names.
func ExampleQueue_At() {
	ctx, s, stop := start()
	defer stop()
	opts := []fairqueue.Option{fairqueue.WithLabel("billing"), fairqueue.WithRecheck(5 * time.Second)}
	accounts := fairqueue.New(s, "accounts", opts...)
	for _, number := range []string{"7", "9"} {
		ticket := joined(ctx, accounts.At("accounts/"+number), fairqueue.Exclusive)
		fmt.Println(number, ticket.Granted())
	}
	// Output:
	// 7 true
	// 9 true
}

// Whoever wants to know the length of a queue need not ask again and again.
func ExampleQueue_Follow() {
	ctx, s, stop := start()
	defer stop()
	queue := fairqueue.New(s, "printer")
	for entries, err := range queue.Follow(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(entries), "in line")
		if len(entries) == 2 {
			break
		}
		joined(ctx, queue, fairqueue.Exclusive)
	}
	// Output:
	// 0 in line
	// 1 in line
	// 2 in line
}
