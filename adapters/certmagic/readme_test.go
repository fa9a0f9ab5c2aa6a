package certmagiclock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"certmagic":     "github.com/caddyserver/certmagic",
		"certmagiclock": "github.com/etcdlock/locks/adapters/certmagic",
		"clientv3":      "go.etcd.io/etcd/client/v3",
		"context":       "context",
		"etcdlock":      "github.com/etcdlock/locks/etcdlock",
		"log":           "log",
		"session":       "github.com/etcdlock/locks/session",
	}, Prelude: `
var (
	client *clientv3.Client
	ctx context.Context
	storage certmagic.Storage
)
`}.Check(t, "README.md")
}
