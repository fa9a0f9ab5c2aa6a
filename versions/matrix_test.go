package versions

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The columns of the table.
const (
	locks     = "locks"
	elections = "elections"
	mixed     = "queues shared with etcd's clients"
	ctl       = "with etcdctl"
)

var columns = []string{locks, elections, mixed, ctl}

// outcomes counts what has come of the tests, by release and column.
var outcomes = struct {
	sync.Mutex
	ok, failed, skipped map[[2]string]int
}{ok: map[[2]string]int{}, failed: map[[2]string]int{}, skipped: map[[2]string]int{}}

// onEach runs a test against every release, and notes what came of it in a column.
func onEach(t *testing.T, column string, test func(*testing.T, *etcd)) {
	t.Helper()
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { note(t, r.name, column) })
			e := r.start(t)
			if column == ctl && e.etcdctl == "" {
				t.Skipf("etcdctl %s is not available: %s", r.name, r.noCtl)
			}
			test(t, e)
		})
	}
}

func note(t *testing.T, release, column string) {
	outcomes.Lock()
	defer outcomes.Unlock()
	cell := [2]string{release, column}
	switch {
	case t.Failed():
		outcomes.failed[cell]++
	case t.Skipped():
		outcomes.skipped[cell]++
	default:
		outcomes.ok[cell]++
	}
}

// table is the result as Markdown.
func table() string {
	outcomes.Lock()
	defer outcomes.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\n| etcd | %s |\n|---%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	for _, r := range releases {
		version := r.name
		if r.server.etcd != nil {
			version = r.server.etcd.version
		}
		fmt.Fprintf(&b, "| %s ", version)
		for _, column := range columns {
			fmt.Fprintf(&b, "| %s ", result([2]string{r.name, column}))
		}
		b.WriteString("|\n")
	}
	for _, r := range releases {
		if r.absent != "" {
			fmt.Fprintf(&b, "\netcd %s is not available: %s\n", r.name, r.absent)
		}
		if r.noCtl != "" {
			fmt.Fprintf(&b, "\netcdctl %s is not available: %s\n", r.name, r.noCtl)
		}
	}
	return b.String()
}

func result(cell [2]string) string {
	switch {
	case outcomes.failed[cell] > 0:
		return "FAILED"
	case outcomes.ok[cell] > 0:
		return "ok"
	case outcomes.skipped[cell] > 0:
		return "not available"
	default:
		return "not run"
	}
}
