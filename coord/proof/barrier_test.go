package proof_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
)

// awaitCall is a call of Await.
type awaitCall struct {
	since, until int64 // revisions before and after the call
	generation   int64 // 0: it has failed
	early        bool  // was over before all had noticed that the cluster has gone back
	lost         bool  // a session meanwhile, so it may have had an earlier place
	taken        bool  // for the party of a place
}

// barrierRun is what the parties of one barrier do and see.
type barrierRun struct {
	*crowd
	parties int
	tell    func(awaitCall) // may be nil
	over    chan struct{}   // no further calls
	mu      sync.Mutex
	calls   []awaitCall
}

// The calls of one generation overlap. At some revision so many as are needed stood there, and each of them has gone on, or has
// failed at that time. No party is stuck when enough stand there.
func TestBarrierInStorms(t *testing.T) { eachSeed(t, stormBarrier, 1, 2) }

func stormBarrier(t *testing.T, seed uint64) {
	r := &barrierRun{crowd: newCrowd(t, seed), over: make(chan struct{})}
	r.parties = 2 + r.random.IntN(4)
	r.behave = func(p *caller) {
		var calling sync.WaitGroup
		for range 3 {
			calling.Go(func() {
				for p.ctx.Err() == nil && !ended(r.over) {
					r.await(p.ctx, p, callLimit)
				}
			})
		}
		calling.Wait()
	}
	r.storm()
	close(r.over)

	// Those that still wait go on with parties without faults.
	ctx, stop := context.WithCancel(t.Context())
	quiet := &caller{ctx: ctx, sessions: keepQuiet(t, r.client)}
	var helping sync.WaitGroup
	for range r.parties {
		helping.Go(func() {
			for ctx.Err() == nil {
				r.await(ctx, quiet, patience)
			}
		})
	}
	returned := atomic.Bool{}
	go func() {
		r.running.Wait()
		returned.Store(true)
	}()
	require.Eventually(t, returned.Load, patience, 10*time.Millisecond, "a party is stuck")
	stop()
	helping.Wait()
	r.requireClean(quiet)
	generations, complete := r.check(r.finish(), 0)
	t.Logf("%d parties, %d calls, %d generations, %d of which went on whole", r.parties, len(r.calls), generations, complete)
	require.NotZero(t, generations)
}

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// await calls Await, and notes the call.
func (r *barrierRun) await(ctx context.Context, p *caller, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before, _ := p.sessions.Session(ctx)
	age := r.age.Load()
	call := awaitCall{since: r.revision()}
	generation, err := coord.NewBarrier(p.sessions, "x", r.parties).Await(ctx)
	call.until = r.revision()
	after, _ := p.sessions.Session(ctx)
	call.lost = before != after
	if err == nil {
		r.good.Add(1)
		call.generation = generation
		if generation == 0 {
			r.t.Error("a generation of 0")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.age.steady(age) {
		call = awaitCall{until: call.until, early: r.age.Load()%2 == 1}
	}
	r.calls = append(r.calls, call)
	if r.tell != nil {
		r.tell(call)
	}
}

// requireClean waits until no place is left. After one more party, and with its session, nothing is.
func (r *barrierRun) requireClean(quiet *caller) {
	r.t.Helper()
	left := func(prefix string) (keys []string) {
		answer, err := r.client.Get(r.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(r.t, err)
		for _, kv := range answer.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
	deadline := time.Now().Add(patience)
	for len(left("etcdlock/x!/barrier/line/")) > 0 && time.Now().Before(deadline) {
		pause(r.t.Context(), 20*time.Millisecond)
	}
	for len(left("etcdlock/x!/barrier/open/")) > 0 && time.Now().Before(deadline) {
		r.await(r.t.Context(), quiet, 100*time.Millisecond)
	}
	require.NoError(r.t, quiet.sessions.Close(r.t.Context()))
	for len(left("etcdlock/x!/")) > 0 && time.Now().Before(deadline) {
		pause(r.t.Context(), 20*time.Millisecond)
	}
	require.Empty(r.t, left("etcdlock/x!/"))
}

// check goes through the history, and checks what is later than a revision.
func (r *barrierRun) check(history []embedtest.Change, after int64) (generations, complete int) {
	returned := map[int64][]awaitCall{}
	for _, call := range r.calls {
		if call.generation > 0 {
			returned[call.generation] = append(returned[call.generation], call)
		}
	}
	const openings = "etcdlock/x!/barrier/open/"
	s, last, opened := newLine("etcdlock/x!/barrier/line/"), int64(0), map[int64]bool{}
	var before []*line // the states since the last opening
	for _, c := range history {
		for _, e := range c.Events {
			if !strings.HasPrefix(string(e.Kv.Key), openings) || e.Type != clientv3.EventTypePut {
				continue
			}
			var ends []int64
			require.NoError(r.t, json.Unmarshal(e.Kv.Value, &ends))
			end := ends[len(ends)-1]
			if e.Kv.ModRevision <= after {
				opened[end], last, before = true, end, nil
				continue
			}
			require.Greater(r.t, end, last, "an opening at %d goes back", e.Kv.ModRevision)
			first := int64(0)
			for _, state := range before {
				if places := state.between(last, end); len(places) == r.parties && places[len(places)-1] == end {
					first = places[0]
				}
			}
			require.NotZero(r.t, first, "the opening at %d was not for %d parties that stood there", e.Kv.ModRevision, r.parties)
			r.checkGeneration(returned[end], first, end, e.Kv.ModRevision)
			if len(returned[end]) == r.parties {
				complete++
			}
			opened[end], last, before = true, end, nil
			generations++
		}
		s.apply(c.Events)
		before = append(before, s.copy())
	}
	for generation := range returned {
		require.True(r.t, opened[generation], "generation %d was never opened", generation)
	}
	return generations, complete
}

// checkGeneration checks the calls of an opening, whose last place is end and whose first is first, and that was written at a revision.
func (r *barrierRun) checkGeneration(calls []awaitCall, first, end, written int64) {
	require.LessOrEqual(r.t, len(calls), r.parties, "too many parties have gone on with %d", end)
	for _, call := range calls {
		require.Less(r.t, call.since, end, "a party came after the last of its opening")
		require.GreaterOrEqual(r.t, call.until, written, "a party went on before the opening")
	}
	for range r.parties - len(calls) {
		require.True(r.t, r.takeFailed(first, end), "parties of %d went on with another opening", end)
	}
}

// takeFailed looks for a call that has failed, or lost a session and joined again, and may have had a place from first to end,
// and has been taken for no other place. Its request for the place may have been late.
func (r *barrierRun) takeFailed(first, end int64) bool {
	best := -1
	for i, call := range r.calls {
		if call.generation != 0 && !call.lost || call.taken || call.since >= end {
			continue
		}
		// Of those that may have had a place, the one that is over first. Otherwise the one that is over last.
		inTime := call.until >= first
		if best < 0 || inTime && (r.calls[best].until < first || call.until < r.calls[best].until) ||
			!inTime && r.calls[best].until < call.until && r.calls[best].until < first {
			best = i
		}
	}
	if best >= 0 {
		r.calls[best].taken = true
	}
	return best >= 0
}
