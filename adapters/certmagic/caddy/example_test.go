package caddylock_test

import (
	"fmt"
	"log"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/etcdlock/locks/adapters/certmagic/caddy" // registers the storage
)

// A Caddyfile with the storage, and the JSON configuration that Caddy makes of it.
func Example() {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`{
	storage etcdlock etcd-1:2379 etcd-2:2379 {
		prefix fleet
		ttl 20s
	}
}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(config))
	// Output:
	// {"storage":{"endpoints":["etcd-1:2379","etcd-2:2379"],"module":"etcdlock","prefix":"fleet","ttl":20000000000}}
}
