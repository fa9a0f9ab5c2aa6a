package proof_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// line is the tickets below a prefix at a revision.
type line struct {
	prefix  string
	tickets map[string]int64 // token by key
}

func newLine(prefix string) *line { return &line{prefix, map[string]int64{}} }

func (l *line) apply(events []*clientv3.Event) {
	for _, e := range events {
		key := string(e.Kv.Key)
		if rest, ok := strings.CutPrefix(key, l.prefix); !ok || strings.Contains(rest, "!") || strings.Contains(rest, "/") {
			continue
		}
		if e.Type == clientv3.EventTypeDelete {
			delete(l.tickets, key)
		} else {
			l.tickets[key] = e.Kv.CreateRevision
		}
	}
}

// first is the lowest token, as text.
func (l *line) first() string {
	tokens := l.between(0, 1<<62)
	if len(tokens) == 0 {
		return "none"
	}
	return strconv.FormatInt(tokens[0], 10)
}

// between returns the tokens above after, and not above until, in order.
func (l *line) between(after, until int64) (tokens []int64) {
	for _, token := range l.tickets {
		if token > after && token <= until {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, cmp.Compare)
	return tokens
}

// keepQuiet returns sessions without faults, which are closed at the end of the test.
func keepQuiet(t *testing.T, client *clientv3.Client) *session.Keeper {
	k := session.Keep(client, session.WithTTL(10*time.Second))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

func (l *line) copy() *line { return &line{l.prefix, maps.Clone(l.tickets)} }
