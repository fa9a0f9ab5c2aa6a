//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// patience bounds what must not take long.
const patience = 30 * time.Second

var (
	brownout = flag.Duration("brownout", 15*time.Second, "how long etcd is slow in BenchmarkBrownout")
	recovery = flag.Duration("recovery", time.Minute, "how long etcd answers again before BenchmarkBrownout measures")
	observed = flag.Duration("observed", 10*time.Second, "for how long BenchmarkBrownout measures each time")
)

// BenchmarkBrownout measures what a process and its etcd do without callers, before and some time after etcd was
// slow: 64 mutexes on one Keeper, transactions delayed by 300 ms, and 400 goroutines that give each Lock
// 30 ms, again and again. What the calls that gave up left behind must not outlive that time: the figures
// after it are to be those before it. For requests and keys that is checked, within a tenth.
//
//	go -C bench test -run '^$' -bench Brownout -benchtime 1x -timeout 10m
//
// For a shorter look, add -brownout 3s -recovery 10s -observed 5s. The processor time and the heap are those of
// client and server together.
func BenchmarkBrownout(b *testing.B) {
	for range b.N {
		c := embedtest.Start(b)
		client := c.Client(b)
		keeper := session.Keep(client, session.WithTTL(15*time.Second))
		mutexes := make([]*etcdlock.Mutex, 64)
		for i := range mutexes {
			mutexes[i] = etcdlock.NewMutex(keeper, fmt.Sprint("m", i))
			lockOnce(b, mutexes[i])
		}
		before := idle(b, c, client)
		during := slowFor(c, mutexes)
		fresh, err := freshLock(keeper)
		time.Sleep(*recovery)
		after := idle(b, c, client)
		// The renewals of that time, one more or less, and the key of the epoch.
		require.LessOrEqual(b, after.requests, before.requests+max(before.requests/10, 1))
		require.LessOrEqual(b, after.keys, before.keys+max(before.keys/10, 1))

		before.report(b, "before")
		after.report(b, "after")
		b.ReportMetric(float64(during.calls), "calls-during")
		b.ReportMetric(float64(during.requests), "requests-during")
		b.ReportMetric(float64(during.heap)/1e6, "MB-during")
		b.ReportMetric(fresh.Seconds()*1e3, "ms-fresh-lock")
		if err != nil {
			b.Log("a fresh lock right afterwards:", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		require.NoError(b, keeper.Close(ctx))
		cancel()
	}
}

func lockOnce(b *testing.B, m *etcdlock.Mutex) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := m.Lock(ctx)
	require.NoError(b, err)
	require.NoError(b, h.Unlock(ctx))
}

// freshLock takes a lock of a new name, and tells how long that took.
func freshLock(src session.Source) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	h, err := etcdlock.NewMutex(src, "fresh").Lock(ctx)
	if err == nil {
		err = h.Unlock(ctx)
	}
	return time.Since(began), err
}

type slowTime struct {
	calls, requests int64
	heap            uint64 // the largest seen
}

// slowFor makes etcd slow for a while, with callers that do not wait for it.
func slowFor(c *embedtest.Cluster, mutexes []*etcdlock.Mutex) (t slowTime) {
	requests := requestsTo(c)
	slow := c.Delay("Txn", 300*time.Millisecond)
	over, stop := context.WithTimeout(context.Background(), *brownout)
	defer stop()
	var calls atomic.Int64
	var callers sync.WaitGroup
	for i := range 400 {
		m := mutexes[i%len(mutexes)]
		callers.Go(func() {
			for over.Err() == nil {
				calls.Add(1)
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				if h, err := m.Lock(ctx); err == nil {
					_ = h.Unlock(ctx) // if that takes too long, it goes on in the background
				}
				cancel()
			}
		})
	}
	for over.Err() == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.heap = max(t.heap, m.HeapInuse)
		time.Sleep(100 * time.Millisecond)
	}
	callers.Wait()
	slow.Heal()
	t.calls, t.requests = calls.Load(), requestsTo(c)-requests
	return t
}

// idling is what is used and done while nobody calls anything.
type idling struct {
	requests  int64
	processor time.Duration
	heap      uint64
	keys      int64
}

func idle(b *testing.B, c *embedtest.Cluster, client *clientv3.Client) (i idling) {
	runtime.GC()
	runtime.GC() // what finalizers held
	requests, processor := requestsTo(c), processorTime(b)
	time.Sleep(*observed)
	i.requests, i.processor = requestsTo(c)-requests, processorTime(b)-processor
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	i.heap = m.HeapAlloc
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if !errors.Is(err, context.DeadlineExceeded) {
		require.NoError(b, err)
		i.keys = answer.Count
	}
	return i
}

func (i idling) report(b *testing.B, when string) {
	b.ReportMetric(float64(i.requests), "requests-"+when)
	b.ReportMetric(i.processor.Seconds()*1e3, "processor-ms-"+when)
	b.ReportMetric(float64(i.heap)/1e6, "MB-"+when)
	b.ReportMetric(float64(i.keys), "keys-"+when)
}

// requestsTo counts all that the cluster has been asked.
func requestsTo(c *embedtest.Cluster) (n int64) {
	for _, method := range []string{"Range", "Put", "DeleteRange", "Txn", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "Watch"} {
		n += c.Calls(method)
	}
	return n
}

// processorTime is what this process has used, etcd included.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
