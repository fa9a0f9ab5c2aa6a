// Package within says which holds a context comes from. Package etcdlock knows that, and package fairqueue writes it into
// the tickets that are joined with such a context, for those that look for deadlocks.
package within

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// most is how many keys are written. With it the value of a ticket stays small.
const most = 8

// Key is that of a context's value, which is a [Holds].
type Key struct{}

// Holds are those that a context comes from.
type Holds interface {
	// Live yields the keys of those that have not ended, with their create revisions, and are in the etcd of a client.
	Live(*clientv3.Client) iter.Seq2[string, int64]
}

// Live returns the keys of the holds that ctx comes from: a line for each, of a create revision, a space and the key. It is
// empty if there are none.
func Live(ctx context.Context, client *clientv3.Client) string {
	holds, ok := ctx.Value(Key{}).(Holds)
	if !ok {
		return ""
	}
	var lines []string
	for key, revision := range holds.Live(client) {
		if len(lines) == most {
			break
		}
		if !strings.Contains(key, "\n") {
			lines = append(lines, fmt.Sprintf("%d %s", revision, key))
		}
	}
	return strings.Join(lines, "\n")
}

// Parse yields the keys that Live has written, with their create revisions.
func Parse(lines string) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for line := range strings.SplitSeq(lines, "\n") {
			number, key, ok := strings.Cut(line, " ")
			revision, err := strconv.ParseInt(number, 10, 64)
			if ok && err == nil && !yield(key, revision) {
				return
			}
		}
	}
}
