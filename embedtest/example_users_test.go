package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/embedtest"
)

// Which permissions does a service need? Start with few.
func ExampleWithAuth() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithAuth("root's password", embedtest.User{
			Name:     "shop",
			Password: "secret",
			Grants:   []embedtest.Grant{embedtest.ReadWrite("orders/"), embedtest.Read("prices/"), embedtest.Write("log/")},
		}))
		if _, err := cluster.Client(t).Put(t.Context(), "prices/tea", "3"); err != nil { // root
			t.Fatal(err)
		}

		shop := cluster.ClientAs(t, "shop")
		for _, key := range []string{"orders/1", "prices/tea", "log/1", "etcdlock/orders/"} {
			_, read := shop.Get(t.Context(), key)
			_, write := shop.Put(t.Context(), key, "v")
			fmt.Println(key, errors.Is(read, rpctypes.ErrPermissionDenied), errors.Is(write, rpctypes.ErrPermissionDenied))
		}
	})
	// Output:
	// orders/1 false false
	// prices/tea false true
	// log/1 true false
	// etcdlock/orders/ true true
}

// Without a test there are Open and NewClientAs, and something to close.
func ExampleCluster_NewClientAs() {
	guest := embedtest.User{Name: "guest", Password: "secret"} // may have leases, no more
	cluster, err := embedtest.Open(embedtest.WithAuth("root's password", guest))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClientAs(guest.Name)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.Get(context.Background(), "k")
	fmt.Println(err)
	// Output: etcdserver: permission denied
}

// Does a service go on if its token has expired? One that has the password does. In virtual time
// nobody waits for that.
func ExampleWithTokenTTL() {
	var t testing.T
	synctest.Test(&t, func(t *testing.T) {
		cluster := embedtest.Start(t, embedtest.WithVirtualTime(), embedtest.WithTokenTTL(5*time.Minute),
			embedtest.WithAuth("root's password", embedtest.User{
				Name: "shop", Password: "secret", Grants: []embedtest.Grant{embedtest.Read("")},
			}))
		shop := cluster.ClientAs(t, "shop")
		for range 2 {
			_, err := shop.Get(t.Context(), "k")
			fmt.Println(err)
			time.Sleep(10 * time.Minute)
		}
	})
	// Output:
	// <nil>
	// <nil>
}

// The clients of the package are set up for it. One that the code under test makes itself needs the authority.
func ExampleWithTLS() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithTLS())
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{cluster.Leader().Endpoint()},
			TLS:       cluster.TLSConfig(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = client.Put(t.Context(), "k", "v")
		fmt.Println(err)
	})
	// Output: <nil>
}

// Here the client has to show a certificate, too.
func ExampleWithMutualTLS() {
	inTest(func(t testing.TB) {
		cluster := embedtest.Start(t, embedtest.WithMutualTLS())
		forgetful := cluster.TLSConfig() // a copy
		forgetful.Certificates = nil
		client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), TLS: forgetful, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = client.Put(ctx, "k", "v")
		fmt.Println("it gets in:", err == nil)
	})
	// Output: it gets in: false
}
