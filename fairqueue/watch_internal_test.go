package fairqueue

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// Events after the end, in the same answer, are not seen: a watch that delivered them is not kept.
func TestAWatchIsCompleteIfTheEndOfTheBlockerIsItsLastEvent(t *testing.T) {
	deleted := func(revision int64) *clientv3.Event {
		return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte("q/x1-0"), ModRevision: revision}}
	}
	ticket := &part{mode: Exclusive, state: state{nearest: entry{key: "q/x1-0", revision: 5}}}
	for _, test := range []struct {
		name   string
		events []*clientv3.Event
		end    int64
		last   bool
	}{
		{"nothing", nil, 0, false},
		{"an earlier ticket of that name", []*clientv3.Event{deleted(4)}, 0, false},
		{"the end", []*clientv3.Event{deleted(7)}, 7, true},
		{"the end, after an earlier ticket's", []*clientv3.Event{deleted(4), deleted(7)}, 7, true},
		{"the end, and a later ticket's", []*clientv3.Event{deleted(7), deleted(9)}, 7, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, last := inOrder{}.blocker(ticket).endIn(clientv3.WatchResponse{Events: test.events})
			require.Equal(t, test.end, n.revision)
			require.Equal(t, test.end > 0, n.ended)
			require.Equal(t, test.last, last)
		})
	}
}

// A caller that means never may give the longest time there is.
func TestTheLongestRecheckIsNotAtOnce(t *testing.T) {
	q := New(newInquiry(t).queue.source, "q", WithRecheck(math.MaxInt64))
	for _, length := range []int64{0, 2000, math.MaxInt64} {
		for range 100 {
			require.Greater(t, request.Jitter(blocker{length: length}.patience(q.recheck)), time.Hour)
		}
	}
}
