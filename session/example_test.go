package session_test

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdlock/locks/session"
)

// Keys bound to a session's lease live as long as the session does.
func ExampleNew() {
	ctx := context.Background()
	_, client, stop := start()
	defer stop()
	s, err := session.New(ctx, client, session.WithTTL(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.State(), s.TTL(), s.Err())

	if err := s.Close(ctx); err != nil {
		fmt.Println(err)
	}
	<-s.Done()
	fmt.Println(s.State(), s.Err())
	// Output:
	// live 10s <nil>
	// closed etcdlock: session closed
}

// A Keeper replaces a session that was lost. What was bound to the old one stays
// lost.
func ExampleKeep() {
	ctx := context.Background()
	_, client, stop := start()
	defer stop()
	keeper := session.Keep(client)
	defer keeper.Close(ctx)
	first, err := keeper.Session(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	// An operator takes the lease away; the next renewal notices.
	if _, err := client.Revoke(ctx, first.Lease()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("renewed:", first.Renew(ctx) == nil)

	second, err := keeper.Session(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("first:", first.State())
	fmt.Println("second:", second.State())
	// Output:
	// renewed: false
	// first: lost
	// second: live
}
