package proof_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

const processNumber = "ETCDLOCK_PROOF_PROCESS"

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	goleak.VerifyTestMain(m)
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
