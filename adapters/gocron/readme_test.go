package gocronlock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"clientv3":   "go.etcd.io/etcd/client/v3",
		"context":    "context",
		"gocron":     "github.com/go-co-op/gocron/v2",
		"gocronlock": "github.com/etcdlock/locks/adapters/gocron",
		"session":    "github.com/etcdlock/locks/session",
		"time":       "time",
	}, Prelude: `
var (
	client *clientv3.Client
	ctx context.Context
)

func report() {}
`}.Check(t, "README.md")
}
