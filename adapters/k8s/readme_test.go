package k8slock_test

import (
	"testing"

	"github.com/etcdlock/locks/internal/samples"
)

func TestTheSampleOfTheReadmeCompiles(t *testing.T) {
	samples.Scope{Imports: map[string]string{
		"clientv3": "go.etcd.io/etcd/client/v3",
		"context":  "context",
		"k8slock":  "github.com/etcdlock/locks/adapters/k8s",
		"manager":  "sigs.k8s.io/controller-runtime/pkg/manager",
		"rest":     "k8s.io/client-go/rest",
		"session":  "github.com/etcdlock/locks/session",
	}, Prelude: `
var (
	client *clientv3.Client
	ctx context.Context
	podName string
	config *rest.Config
)
`}.Check(t, "README.md")
}
