package proof_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/internal/closer"
)

const processNumber = "ETCDLOCK_PROOF_PROCESS"

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	flag.Parse()
	explainTimeout()
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

func closeClient(client *clientv3.Client) {
	if !closer.Close(client, 10*time.Second) {
		stuck.Store(true)
	}
}

// explainTimeout ends tests that hang, shortly before their time is over, and prints where they are. Among the thousands
// of goroutines that are printed otherwise they are not found.
func explainTimeout() {
	limit := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if limit == 0 {
		limit = 24 * time.Hour
	}
	time.AfterFunc(limit-limit/20, func() {
		fmt.Fprintln(os.Stderr, "the tests hang:")
		fmt.Fprintln(os.Stderr, strings.Join(stacks("_test.go:", "client/v3.(*watchGRPCStream).run"), "\n\n"))
		os.Exit(2)
	})
}

// stacks returns the stacks of all goroutines that are in one of the places.
func stacks(places ...string) (found []string) {
	all := make([]byte, 64<<20)
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if slices.ContainsFunc(places, func(place string) bool { return strings.Contains(stack, place) }) {
			found = append(found, stack)
		}
	}
	return found
}

// runAsChild is for tests that need other processes: they run this program again.
func runAsChild() bool {
	number := os.Getenv(processNumber)
	if number == "" {
		return false
	}
	if err := process(number); err != nil {
		panic(err)
	}
	return true
}
