package proof_test

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/internal/closer"
)

var (
	chaos = flag.Duration("chaos", 0, "how long to raise storms with random seeds; 0: a few with fixed ones")
	seed  = flag.Uint64("seed", 0, "the seed of a single storm; 0: see -chaos")
)

// patience is how long a test waits for what has to happen.
// It is far more than that takes, for a machine that is busy.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	// The tests wait most of the time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 && !stuck.Load() {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// stuck is whether a client could not be closed, so that goroutines of it are left.
var stuck atomic.Bool

// closeClient closes a client, and gives up after a while.
func closeClient(client *clientv3.Client) {
	if !closer.Close(client, 10*time.Second) {
		stuck.Store(true)
	}
}
