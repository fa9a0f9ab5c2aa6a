package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// slowKV answers when it is told to, and counts what it is asked.
type slowKV struct {
	mu sync.Mutex
	pastKV

	answer chan struct{}
	asked  chan *etcdserverpb.RangeRequest
	refuse func(*etcdserverpb.RangeRequest) error
}

var errSilent = errors.New("never to be heard of")

func (k *slowKV) Range(ctx context.Context, r *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	k.asked <- r
	<-k.answer
	if err := k.refuse(r); errors.Is(err, errSilent) {
		<-ctx.Done()
		return nil, ctx.Err()
	} else if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pastKV.Range(ctx, r, opts...)
}

// herd runs the first looks of n tickets that have just joined a queue of one session, all at
// once, and returns the tickets and what etcd was asked.
func herd(t *testing.T, n int, refuse func(*etcdserverpb.RangeRequest) error) (tickets []*part, asked []*etcdserverpb.RangeRequest) {
	synctest.Test(t, func(t *testing.T) {
		kv := &slowKV{answer: make(chan struct{}), asked: make(chan *etcdserverpb.RangeRequest, 1000), refuse: refuse}
		start := time.Now()
		s, err := session.New(context.Background(), &clientv3.Client{Lease: lease{}, KV: clientv3.NewKVFromKVClient(kv, nil)},
			session.WithClock(func() time.Duration { return time.Since(start) }))
		require.NoError(t, err)
		q := New(s, "q", Options{})
		now := map[string]birth{}
		for i := range n {
			ticket := &part{queue: q, session: s, mode: Exclusive, strategy: exclusive{}, state: state{verdict: askFurther}}
			ticket.me = entry{key: q.space.key(Exclusive, 1, i, 0), revision: int64(i + 2)}
			now[ticket.me.key] = birth{revision: ticket.me.revision}
			tickets = append(tickets, ticket)
		}
		kv.past = make(past, n+2)
		kv.past[n+1], kv.behind = now, int64(n+1)
		results := make(chan error, len(tickets))
		for i, ticket := range tickets {
			go func() { results <- ticket.strategy.firstLook(context.Background(), ticket) }()
			if i == 0 || i == n-1 {
				synctest.Wait() // until each waits: the first for its answer, the others for their turn
			}
		}
		close(kv.answer)
		for range tickets {
			require.NoError(t, <-results)
		}
		close(kv.asked)
		for r := range kv.asked {
			asked = append(asked, r)
		}
		require.NoError(t, s.Close(context.Background()))
	})
	return tickets, asked
}

func requireInLine(t *testing.T, tickets []*part) {
	require.Equal(t, granted, tickets[0].verdict)
	for i, ticket := range tickets[1:] {
		require.Equal(t, blocked, ticket.verdict)
		require.Equal(t, tickets[i].me, ticket.nearest)
		require.EqualValues(t, len(tickets), ticket.length)
	}
}

func TestTheFirstLooksOfAHerdAreShared(t *testing.T) {
	tickets, asked := herd(t, 300, func(*etcdserverpb.RangeRequest) error { return nil })
	requireInLine(t, tickets)
	require.Len(t, asked, 2, "the one that came first, and the others")
	require.EqualValues(t, 2, asked[0].Limit)
	require.Zero(t, asked[1].Limit)
	require.False(t, asked[1].Serializable, "since it has to be later than all of their joins")
}

func TestWithoutASharedAnswerEachLooks(t *testing.T) {
	for _, code := range []codes.Code{
		codes.ResourceExhausted, // larger than this client takes
		codes.Internal,          // a proxy, say, that cuts long answers: tried again, but not for ever
	} {
		t.Run(code.String(), func(t *testing.T) {
			tickets, asked := herd(t, 300, func(r *etcdserverpb.RangeRequest) error {
				if r.Limit == 0 {
					return status.Error(code, "too large")
				}
				return nil
			})
			requireInLine(t, tickets)
			require.Greater(t, len(asked), len(tickets))
		})
	}
}

// The second attempt goes to another endpoint.
func TestASilentEndpointDoesNotMakeEachLook(t *testing.T) {
	silent := make(chan struct{}, 1)
	silent <- struct{}{}
	tickets, asked := herd(t, 300, func(r *etcdserverpb.RangeRequest) error {
		if r.Limit > 0 {
			return nil
		}
		select {
		case <-silent:
			return errSilent
		default:
			return nil
		}
	})
	requireInLine(t, tickets)
	require.Len(t, asked, 3)
}

func TestALoneWaiterDoesNotReadTheWholeQueue(t *testing.T) {
	tickets, asked := herd(t, 1, func(*etcdserverpb.RangeRequest) error { return nil })
	requireInLine(t, tickets)
	require.Len(t, asked, len(tickets))
	for _, r := range asked {
		require.EqualValues(t, 2, r.Limit)
	}
}

func TestManyWaitersHaveMorePatience(t *testing.T) {
	for length, times := range map[int64]int{0: 1, 64: 1, 1999: 1, 2000: 2, 5000: 5, 100_000: 6} {
		require.Equal(t, time.Duration(times)*time.Second, blocker{length: length}.patience(time.Second), length)
	}
}

func TestTheLengthInAnOwnersMark(t *testing.T) {
	const s = space("q/")
	const marked = `{"mark":"owner 600 at 7","host":"h"}`
	for name, tt := range map[string]struct {
		key    string
		born   int64
		value  string
		length int64
	}{
		"an owner that says so":              {"q/x1-0", 7, marked, 600},
		"what is written":                    {"q/x1-0", 7, fmt.Sprintf(ownerMark, 512, 7) + `"since":""}`, 512},
		"one that says nothing":              {"q/x1-0", 7, `{"host":"h"}`, 0},
		"one that shares":                    {"q/x1-0", 7, markedShared + `"host":"h"}`, 0},
		"a later ticket of the same name":    {"q/x1-0", 8, marked, 0},
		"a candidate, whose value is free":   {"q/l1-0", 7, marked, 0},
		"a shared ticket":                    {"q/s1-0", 7, marked, 0},
		"a ticket of etcd's package":         {"q/694d", 7, marked, 0},
		"of the lock service, with a hyphen": {"q/6-4", 7, marked, 0},
		"no end":                             {"q/x1-0", 7, `{"mark":"owner 600 at 7`, 0},
		"a copy of another's":                {"q/x1-0", 7, `{"mark":"owner 600 at 6","host":"h"}`, 0},
		"no revision":                        {"q/x1-0", 7, `{"mark":"owner 600","host":"h"}`, 0},
	} {
		owner := entry{key: tt.key, revision: 7}
		e := &clientv3.Event{PrevKv: &mvccpb.KeyValue{Key: []byte(tt.key), CreateRevision: tt.born, Value: []byte(tt.value)}}
		require.Equal(t, tt.length, s.markedLength(owner, e), name)
		require.Zero(t, s.markedLength(owner, &clientv3.Event{}), "compacted")
	}
}

// Events after the end, in the same answer, are not seen: a watch that delivered them is not kept.
func TestAWatchIsCompleteIfTheEndOfTheBlockerIsItsLastEvent(t *testing.T) {
	ticket := &part{mode: Exclusive, state: state{nearest: entry{key: "q/x1-0", revision: 5}}}
	for name, tt := range map[string]struct {
		deletions []int64
		end       int64
		last      bool
	}{
		"nothing":                            {nil, 0, false},
		"an earlier ticket of that name":     {[]int64{4}, 0, false},
		"the end":                            {[]int64{7}, 7, true},
		"the end, after an earlier ticket's": {[]int64{4, 7}, 7, true},
		"the end, and a later ticket's":      {[]int64{7, 9}, 7, false},
	} {
		var events []*clientv3.Event
		for _, at := range tt.deletions {
			deleted := &mvccpb.KeyValue{Key: []byte("q/x1-0"), ModRevision: at}
			events = append(events, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: deleted})
		}
		up, last := inOrder{}.blocker(ticket, nil).endIn(clientv3.WatchResponse{Events: events})
		require.Equal(t, wakeup{revision: tt.end, ended: tt.end > 0, by: up.by}, up, name)
		require.Equal(t, tt.last, last, name)
	}
}

// A caller that means never may give the longest time there is.
func TestTheLongestRecheckIsNotAtOnce(t *testing.T) {
	q := New(newInquiry(t).queue.source, "q", Options{Recheck: math.MaxInt64})
	for _, length := range []int64{0, 2000, math.MaxInt64} {
		for range 100 {
			require.Greater(t, request.Jitter(blocker{length: length}.patience(q.options.recheck())), time.Hour)
		}
	}
}
