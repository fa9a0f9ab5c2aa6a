package promlock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"clientv3":   "go.etcd.io/etcd/client/v3",
		"context":    "context",
		"etcdlock":   "github.com/etcdlock/locks/etcdlock",
		"prometheus": "github.com/prometheus/client_golang/prometheus",
		"promlock":   "github.com/etcdlock/locks/adapters/prometheus",
		"session":    "github.com/etcdlock/locks/session",
	}, Prelude: `
var client *clientv3.Client
`}.Check(t, "README.md")
}
