package proof_test

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	chaos = flag.Duration("chaos", 0, "how long to raise storms with random seeds; 0: a few with fixed ones")
	seed  = flag.Uint64("seed", 0, "the seed of a single storm; 0: see -chaos")
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
