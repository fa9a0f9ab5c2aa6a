// Failover shows what happens to a lock when members of etcd die. As long as a majority lives, nothing
// does. Without a majority nobody has the lock, and its last holder knows that.
//
//	go run ./examples/failover
//
// Alice holds a lock, Bob waits for it, and every member of a cluster of three is killed in its
// turn, first the one that Alice's renewals go to. Her hold goes on through another member, and
// Bob gets the lock when she releases it. Then a majority is killed while Bob holds it. He loses
// the lock before his lease could expire, and nobody can get it. Alice waits all the while. When
// the members are back, she gets the lock.
//
// Redlock tries with clocks to make a lock outlive a server. With asynchronous replication it does not: a
// replica that does not have the lock yet grants it again.
//
// Read party.go for the service, then rolling.go and majority.go for the faults. The program kills
// members, so it runs on its own etcd and takes no -endpoints.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/etcdlock/locks/examples/internal/stage"
)

var ttl = 2 * time.Second

var program = stage.Program{
	Name:         "failover",
	Story:        story,
	Members:      3,
	OnlyEmbedded: true,
	Flags:        func(f *flag.FlagSet) { f.DurationVar(&ttl, "ttl", ttl, "lease TTL, at least 2s") },
}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) error {
	alice, err := arrive(e, "alice")
	if err != nil {
		return err
	}
	defer alice.leave(ctx)
	bob, err := arrive(e, "bob")
	if err != nil {
		return err
	}
	defer bob.leave(ctx)

	e.Printf("One lock, lease TTL %v, in an etcd of three members: m0, m1 and m2.\n", ttl)
	e.Printf("\n1. Alice holds the lock, Bob waits, and every member dies once\n\n")
	held, err := everyMemberDiesOnce(ctx, e, alice, bob)
	if err != nil {
		return err
	}
	e.Printf("\n2. Bob holds the lock, and a majority dies\n\n")
	lost, dead, err := aMajorityDies(ctx, e, alice, bob, held)
	if err != nil {
		return err
	}
	e.Printf("\n3. The members come back\n\n")
	if err := membersComeBack(ctx, e, alice, bob, lost, dead); err != nil {
		return err
	}
	e.Printf("\nA grant counts when a majority has it in its log, so no member can take one along when it dies. Without\n")
	e.Printf("a majority nobody gets the lock, and a holder without answers gives up before its lease can expire.\n")
	return nil
}
