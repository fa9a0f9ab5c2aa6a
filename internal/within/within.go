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

// With these limits a ticket stays small: 127 of them fit into a request, whatever the names.
const (
	most      = 8   // keys that are written
	mostBytes = 512 // of their lines
)

// Key is that of a context's value, which is a [Holds].
type Key struct{}

// Holds are those that a context comes from.
type Holds interface {
	// Live yields the keys of those that have not ended, with their create revisions, and are in the etcd of a client.
	Live(*clientv3.Client) iter.Seq2[string, int64]
}

// Live returns the keys of the holds that ctx comes from: a line for each, of a create revision, a space and the key. It is
// empty if there are none. Keys that would make it too long are left out.
func Live(ctx context.Context, client *clientv3.Client) string {
	holds, ok := ctx.Value(Key{}).(Holds)
	if !ok {
		return ""
	}
	var lines []string
	left := mostBytes
	for key, revision := range holds.Live(client) {
		if len(lines) == most {
			break
		}
		line := fmt.Sprintf("%d %s\n", revision, key)
		if len(line) <= left && !strings.Contains(key, "\n") {
			lines = append(lines, line)
			left -= len(line)
		}
	}
	return strings.TrimSuffix(strings.Join(lines, ""), "\n")
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
