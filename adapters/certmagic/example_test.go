package certmagiclock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caddyserver/certmagic"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
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

	storage := certmagiclock.NewStorage(client, sessions, "certmagic", certmagiclock.WithOnLost(func(name string, err error) {
		log.Printf("%s: another process may do the same: %v", name, err)
	}))
	certmagic.Default.Storage = storage // before certmagic.HTTPS, certmagic.Manage and the like

	// What certmagic does with it.
	ctx := context.Background()
	if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	if err := storage.Store(ctx, "certificates/example.com/example.com.crt", []byte("-----BEGIN CERTIFICATE-----")); err != nil {
		log.Fatal(err)
	}
	if err := storage.Unlock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	keys, err := storage.List(ctx, "certificates", true)
	fmt.Println(keys, err)
	// Output:
	// [certificates/example.com certificates/example.com/example.com.crt] <nil>
}
