package otellock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"clientv3": "go.etcd.io/etcd/client/v3",
		"context":  "context",
		"etcdlock": "github.com/etcdlock/locks/etcdlock",
		"otellock": "github.com/etcdlock/locks/adapters/otel",
		"session":  "github.com/etcdlock/locks/session",
	}, Prelude: `
var client *clientv3.Client
`}.Check(t, "README.md")
}
