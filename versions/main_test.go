package versions

import (
	"fmt"
	"os"
	"testing"
)

// scratch is where binaries, sockets and data are. Its path is short, since that of a
// socket has to be.
var scratch string

func TestMain(m *testing.M) {
	if os.Getenv(childPrefix) != "" {
		beChild()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "versions"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	defer func() {
		for _, r := range releases {
			if r.server.etcd != nil {
				r.server.etcd.stop()
			}
		}
	}()
	code := m.Run()
	fmt.Print(table())
	return code
}
