// Testing shows how to test a service with embedtest: a service with a mistake that shows only when the
// lock is lost, the test that finds it, and the service for which the test passes.
//
//	go test -v ./examples/testing    # the tests
//	go run ./examples/testing        # the same as a story
//
// A payroll pays everybody once. Two processes run it, in case one dies. A lock keeps them from paying a
// person twice. The tests black-hole the first one's client while it pays, so that it loses the
// lock. The second one takes over, and then the first one goes on.
//
// Read service_test.go first, it is what this example is about; then service.go for the
// difference between RunCarelessly and Run. bank.go is the bank that the tests need.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const ttl = 2 * time.Second

var program = stage.Program{Name: "testing", Story: story, OnlyEmbedded: true}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) error {
	e.Printf("A payroll pays ann, bob and carl once each, and two processes run it, one at a time; lease TTL %v.\n", ttl)
	e.Printf("\n1. RunCarelessly\n\n")
	payments, err := loseTheLockFor(ctx, e, "careless/", (*Payroll).RunCarelessly)
	if err != nil {
		return fmt.Errorf("the careless one: %w", err)
	}
	e.Printf("\n   FOUND   bob has been paid %d times, and nobody has noticed\n", payments["bob"])
	if payments["bob"] != 2 {
		return fmt.Errorf("the mistake was not found: %v", payments)
	}

	e.Printf("\n2. Run, which uses the context of the hold, Ensure and Txn\n\n")
	payments, err = loseTheLockFor(ctx, e, "right/", (*Payroll).Run)
	if !errors.Is(err, etcdlock.ErrLost) {
		return errors.Join(errors.New("the right one did not say that it had lost the lock"), err)
	}
	if !maps.Equal(payments, map[string]int{"ann": 1, "bob": 1, "carl": 1}) {
		return fmt.Errorf("paid: %v", payments)
	}
	e.Printf("\n   PASSED  everybody has been paid once\n")
	e.Printf("\nA test in which nothing goes wrong passes for both. One that loses the lock on purpose takes ten lines more\n")
	e.Printf("and the time of a TTL: see service_test.go.\n")
	return nil
}

// loseTheLockFor is what the function of nearly that name does in the tests, told to an audience.
func loseTheLockFor(ctx context.Context, e *stage.Etcd, prefix string, run func(*Payroll, context.Context) error) (map[string]int, error) {
	client, link, err := e.Cluster.NewLink()
	if err != nil {
		return nil, err
	}
	defer link.Close()
	defer client.Close()
	bank := newFakeBank(func(who, format string, args ...any) { e.Say("%-7s "+format, append([]any{who}, args...)...) })
	people := []string{"ann", "bob", "carl"}
	first := NewPayroll(client, counter{bank, "first"}, e.Prefix+prefix, people, session.WithTTL(ttl))
	second := NewPayroll(e.Client, counter{bank, "second"}, e.Prefix+prefix, people, session.WithTTL(ttl))
	defer func() { _, _ = first.Close(context.WithoutCancel(ctx)), second.Close(context.WithoutCancel(ctx)) }()

	slow := bank.slowDown("bob")
	ended := make(chan error, 1)
	go func() { ended <- run(first, ctx) }()
	select {
	case <-slow.reached:
	case err := <-ended:
		return nil, errors.Join(errors.New("ended too early"), err)
	}
	link.Blackhole()
	e.Say("        link.Blackhole(): what the first one sends does not arrive any more")
	if err := run(second, ctx); err != nil {
		return nil, fmt.Errorf("the second one: %w", err)
	}
	e.Say("second  is done")
	e.Say("        the bank gets on with its work, and link.Heal()")
	close(slow.goOn)
	link.Heal()
	err = <-ended
	if errors.Is(err, etcdlock.ErrLost) {
		e.Say("first   returns: ErrLost")
	} else {
		e.Say("first   returns: %v", err)
	}
	return bank.payments(), err
}
