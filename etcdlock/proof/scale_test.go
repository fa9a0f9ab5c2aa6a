package proof_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var (
	scale = flag.Int("scale", 10, "how many percent of the large numbers to use: 10,000 waiters, 10,000 names")
	soak  = flag.Duration("soak", 4*time.Second, "how long to lock one name without a pause")
)

func share(of int) int { return max(of**scale/100, 1) }

// longTTL keeps sessions from being lost because a loaded machine starves them.
const longTTL = 2 * time.Minute

func newSession(t *testing.T, ctx context.Context, client *clientv3.Client) *session.Session {
	s, err := session.New(ctx, client, session.WithTTL(longTTL))
	require.NoError(t, err)
	return s
}

// All of them are served, in the order in which they came.
func TestManyWaitersOfOneNameAreServedInOrder(t *testing.T) {
	cluster := embedtest.Start(t)
	ctx := t.Context()
	sessions := make([]*session.Session, 16)
	for i := range sessions {
		sessions[i] = newSession(t, ctx, cluster.Client(t))
	}
	first, err := etcdlock.NewMutex(sessions[0], "busy").Lock(ctx)
	require.NoError(t, err)
	var mu sync.Mutex // of the lock it proves, to be exact
	var served []etcdlock.Token
	var waiting sync.WaitGroup
	for i := range share(10_000) {
		m := etcdlock.NewMutex(sessions[i%len(sessions)], "busy")
		waiting.Go(func() {
			assert.NoError(t, etcdlock.Do(ctx, m, func(_ context.Context, h *etcdlock.Hold) error {
				mu.Lock()
				defer mu.Unlock()
				served = append(served, h.Token())
				return nil
			}))
		})
	}
	admin := cluster.Client(t)
	require.Eventually(t, func() bool {
		answer, err := admin.Get(ctx, "etcdlock/busy/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && answer.Count == int64(share(10_000)+1)
	}, 10*time.Minute, 50*time.Millisecond)
	require.NoError(t, first.Unlock(ctx))
	waiting.Wait()
	require.Len(t, served, share(10_000))
	require.True(t, slices.IsSorted(served))
	for _, s := range sessions {
		require.NoError(t, s.Close(context.Background()))
	}
}

// One session holds as many names as one likes, and idles at the cost of one.
func TestOneSessionHoldsManyNames(t *testing.T) {
	cluster := embedtest.Start(t)
	ctx := t.Context()
	s := newSession(t, ctx, cluster.Client(t))
	holds := make([]*etcdlock.Hold, share(10_000))
	var locking sync.WaitGroup
	turn := make(chan struct{}, 64)
	for i := range holds {
		locking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			var err error
			holds[i], err = etcdlock.NewMutex(s, fmt.Sprint("name ", i)).Lock(ctx)
			assert.NoError(t, err)
		})
	}
	locking.Wait()
	require.False(t, t.Failed())
	for _, h := range holds {
		require.NoError(t, h.Err())
	}
	leases, err := cluster.Client(t).Leases(ctx)
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	require.NoError(t, s.Close(context.Background()))
	for _, h := range holds {
		require.ErrorIs(t, h.Err(), etcdlock.ErrClosed)
	}
	answer, err := cluster.Client(t).Get(ctx, "etcdlock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, answer.Count)
}

// Locking one name for a long time leaves nothing behind anywhere: not in this process, nor
// in etcd's keys, leases or watchers.
func TestSteadyLockingGrowsNothing(t *testing.T) {
	cluster := embedtest.Start(t)
	ctx := t.Context()
	admin := cluster.Client(t)
	sessions := make([]*session.Session, 4)
	for i := range sessions {
		sessions[i] = newSession(t, ctx, cluster.Client(t))
	}
	lockFor := func(d time.Duration) int64 {
		var pairs atomic.Int64
		var working sync.WaitGroup
		end := time.Now().Add(d)
		defer compactEvery(t, cluster, 20*time.Second)()
		for _, s := range sessions {
			working.Go(func() {
				m := etcdlock.NewMutex(s, "hot")
				for time.Now().Before(end) {
					if err := etcdlock.Do(ctx, m, func(context.Context, *etcdlock.Hold) error { return nil }); err != nil {
						t.Error(err)
						return
					}
					pairs.Add(1)
				}
			})
		}
		working.Wait()
		return pairs.Load()
	}
	rest := func() weight {
		_, err := cluster.Compact(ctx)
		require.NoError(t, err)
		// Sessions keep watches for a while, for the next caller.
		require.Eventually(t, func() bool { return watchers(t) == 0 }, time.Minute, 50*time.Millisecond)
		return measure(t, admin)
	}
	lockFor(min(*soak/5, time.Minute)) // to warm up
	before := rest()
	pairs := lockFor(*soak)
	after := rest()
	t.Logf("%d pairs in %v: before %+v, after %+v", pairs, *soak, before, after)
	require.Greater(t, pairs, int64(100))
	require.Equal(t, before.keys, after.keys)
	require.Equal(t, before.leases, after.leases)
	require.LessOrEqual(t, after.goroutines, before.goroutines+5)
	require.Less(t, after.heap, before.heap+16<<20)
	for _, s := range sessions {
		require.NoError(t, s.Close(context.Background()))
	}
}

// compactEvery keeps history from filling the space that this etcd has, until the function that
// it returns is called.
func compactEvery(t *testing.T, cluster *embedtest.Cluster, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var compacting sync.WaitGroup
	compacting.Go(func() {
		for wait(ctx, pause); ctx.Err() == nil; wait(ctx, pause) {
			if _, err := cluster.Compact(ctx); ctx.Err() == nil {
				assert.NoError(t, err)
			}
		}
	})
	return func() { cancel(); compacting.Wait() }
}

// weight is what a client and its etcd hold on to.
type weight struct {
	keys       int64
	leases     int
	goroutines int    // of client and server
	heap       uint64 // of both, in bytes
}

func measure(t *testing.T, admin *clientv3.Client) (w weight) {
	answer, err := admin.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	leases, err := admin.Leases(t.Context())
	require.NoError(t, err)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	w.keys, w.leases, w.goroutines, w.heap = answer.Count, len(leases.Leases), runtime.NumGoroutine(), memory.HeapAlloc
	return w
}

// watchers counts those of all etcd servers in this process.
func watchers(t *testing.T) (total float64) {
	families, err := prometheus.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "etcd_debugging_mvcc_watcher_total" {
			total = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return total
}
