package tusdlock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"clientv3":  "go.etcd.io/etcd/client/v3",
		"context":   "context",
		"filestore": "github.com/tus/tusd/v2/pkg/filestore",
		"handler":   "github.com/tus/tusd/v2/pkg/handler",
		"session":   "github.com/etcdlock/locks/session",
		"tusdlock":  "github.com/etcdlock/locks/adapters/tusd",
	}, Prelude: `
var (
	client *clientv3.Client
	ctx context.Context
	store filestore.FileStore
)
`}.Check(t, "README.md")
}
