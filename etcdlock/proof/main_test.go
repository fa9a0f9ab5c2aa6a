package proof_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const processNumber = "ETCDLOCK_PROOF_PROCESS"

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	flag.Parse()
	defer explainTimeout().Stop()
	goleak.VerifyTestMain(m)
}

// explainTimeout ends tests that hang, shortly before their time is over, and prints where they are. Among the thousands
// of goroutines that are printed otherwise they are not found.
func explainTimeout() *time.Timer {
	limit := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if limit == 0 {
		limit = 24 * time.Hour
	}
	return time.AfterFunc(limit-limit/20, func() {
		fmt.Fprintln(os.Stderr, "the tests hang:")
		for _, stack := range stacks() {
			if strings.Contains(stack, "_test.go:") {
				fmt.Fprintf(os.Stderr, "%s\n\n", stack)
			}
		}
		os.Exit(2)
	})
}

// stacks returns those of all goroutines.
func stacks() []string {
	all := make([]byte, 64<<20)
	return strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
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
