package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// onceCall is a call of Do that has returned a value.
type onceCall struct {
	since int64 // revision before the call
	value string
}

// onceRun is what callers of one Once do and see.
type onceRun struct {
	*crowd
	over   chan struct{} // no further calls
	opts   []coord.Option
	tell   func(onceCall) // may be nil
	calls  atomic.Int64   // of the function
	mu     sync.Mutex
	last   *etcdlock.Hold
	values []onceCall
	faults []string
}

// The function runs at one caller at a time, and not while there is a mark; each mark comes with its writes; every value
// that is returned is that of a mark; and all callers return.
func TestOnceInStorms(t *testing.T) { eachSeed(t, stormOnce, 1, 3) }

func stormOnce(t *testing.T, seed uint64) {
	r := &onceRun{crowd: newCrowd(t, seed), over: make(chan struct{}), opts: []coord.Option{coord.WithExpiry(time.Minute)}}
	r.behave = func(p *caller) {
		var calling sync.WaitGroup
		for range 3 {
			calling.Go(func() { r.call(p) })
		}
		calling.Wait()
	}
	var resetting sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	resetter := coord.NewOnce(keepQuiet(t, r.client), "x")
	resetting.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, 100*time.Millisecond)
			if rand.IntN(4) == 0 {
				_ = resetter.Reset(ctx)
			} else {
				r.expire(ctx)
			}
		}
	})
	r.storm()
	close(r.over)
	stop()
	resetting.Wait()
	history := r.finish()

	require.Empty(t, strings.Join(r.faults, "\n"))
	marks, runs := checkOnce(t, history, r.values, 0)
	require.NotZero(t, marks)
	t.Logf("%d calls of the function, %d guarded writes by it, %d marks, %d values returned", r.calls.Load(), runs, marks, len(r.values))
	_, err := coord.NewOnce(keepQuiet(t, r.client), "x").Do(t.Context(), r.work)
	require.NoError(t, err)
}

// expire ends the lease of the mark, as if it had expired.
func (r *onceRun) expire(ctx context.Context) {
	answer, err := r.client.Get(ctx, "etcdlock/x!/once/done")
	if err == nil && len(answer.Kvs) > 0 {
		_, _ = r.client.Revoke(ctx, clientv3.LeaseID(answer.Kvs[0].Lease))
	}
}

// call calls Do again and again.
func (r *onceRun) call(p *caller) {
	o := coord.NewOnce(p.sessions, "x", r.opts...)
	for p.ctx.Err() == nil {
		select {
		case <-r.over:
			return
		default:
		}
		age, since := r.age.Load(), r.revision()
		value, err := o.Do(p.ctx, r.work)
		if err == nil {
			r.good.Add(1)
			r.mu.Lock()
			if r.age.steady(age) {
				r.values = append(r.values, onceCall{since, value})
			}
			if r.tell != nil {
				r.tell(onceCall{since, value})
			}
			r.mu.Unlock()
		}
		pause(p.ctx, 50*time.Millisecond)
	}
}

// work is the function.
func (r *onceRun) work(ctx context.Context, h *etcdlock.Hold) (coord.Outcome, error) {
	r.mu.Lock()
	if r.age.steady(r.age.Load()) && r.last != nil && r.last.Err() == nil && h.Err() == nil && r.last.Token() != h.Token() {
		select {
		case <-r.last.Context().Done():
		default:
			r.faults = append(r.faults, fmt.Sprintf("the functions of tokens %d and %d run at a time", r.last.Token(), h.Token()))
		}
	}
	r.last = h
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.last == h {
			r.last = nil
		}
	}()
	token := strconv.FormatInt(int64(h.Token()), 10)
	for range 2 {
		_, _ = h.Txn(ctx).Then(clientv3.OpPut("work/run", token)).Commit()
		pause(ctx, 30*time.Millisecond)
	}
	value := fmt.Sprint(token, "-", r.calls.Add(1))
	return coord.Outcome{Value: value, Writes: []clientv3.Op{clientv3.OpPut("work/written", value)}}, nil
}

// checkOnce goes through the history of a Once, and checks what is later than a revision.
func checkOnce(t *testing.T, history []embedtest.Change, values []onceCall, after int64) (marks, runs int) {
	const line, mark = "etcdlock/x!/once/lock/", "etcdlock/x!/once/done"
	s := newLine(line)
	marked, made, gone := "", map[string]int64{}, map[string]int64{}
	for _, c := range history {
		var value, written string
		for _, e := range c.Events { // of the state before
			revision, text := e.Kv.ModRevision, string(e.Kv.Value)
			switch key := string(e.Kv.Key); {
			case key == "work/run" && revision > after:
				runs++
				require.Equal(t, s.first(), text, "the function ran at %d without the lock", revision)
				require.Empty(t, marked, "the function ran at %d although there was a mark", revision)
			case key == "work/written":
				written = text
			case key == mark && e.Type == clientv3.EventTypePut:
				var token string
				token, value, _ = strings.Cut(text, " ")
				require.True(t, s.first() == token || revision <= after, "the mark was made at %d without the lock", revision)
				require.True(t, e.IsCreate(), "a mark was written over at %d", revision)
				require.NotContains(t, made, value, "the outcome took effect again at %d", revision)
				made[value], marked = revision, value
				marks++
			case key == mark:
				gone[marked], marked = revision, ""
			}
		}
		require.Equal(t, value, written, "a mark without its writes, or writes without their mark")
		s.apply(c.Events)
	}
	for _, call := range values {
		require.Contains(t, made, call.value, "a value without a mark was returned")
		if end, ok := gone[call.value]; ok {
			require.Greater(t, end, call.since, "%q was returned, whose mark was gone before the call", call.value)
		}
	}
	return marks, runs
}
