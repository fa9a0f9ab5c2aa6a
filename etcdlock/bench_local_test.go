package etcdlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// handover is what the benchmarks use: at most 20 ms for others to wait.
var handover = etcdlock.WithLocalHandover(20*time.Millisecond, 1_000_000)

// BenchmarkLocalHandover has eight goroutines of one process hand one lock on, for half a second
// each time.
func BenchmarkLocalHandover(b *testing.B) {
	onEach(b, []deployment{{1, true}}, func(b *testing.B, cluster *embedtest.Cluster) {
		one := ourProcess(b, cluster, handover)
		var rates []float64
		for b.Loop() {
			grants, _ := inTurns(b, 500*time.Millisecond, 8, []process{one})
			rates = append(rates, grants[0])
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(rates), "grants/s")
	})
}

// BenchmarkLocalProcesses has eight processes (sessions, on clients of their own) of eight
// goroutines each contend for one lock, for three seconds each time. wait is the longest time that
// a process had to do without, and share the smallest part that one had of what would be its.
func BenchmarkLocalProcesses(b *testing.B) {
	onEach(b, []deployment{{1, true}, {1, false}}, func(b *testing.B, cluster *embedtest.Cluster) {
		var ours, theirs []process
		for range 8 {
			ours = append(ours, ourProcess(b, cluster, handover))
			theirs = append(theirs, theirProcess(b, cluster))
		}
		figures := map[string][]float64{}
		for b.Loop() {
			for name, all := range map[string][]process{"etcd": theirs, "ours": ours} {
				grants, longest := inTurns(b, 3*time.Second, 8, all)
				sum, least := 0.0, slices.Min(grants)
				for _, g := range grants {
					sum += g
				}
				figures[name+"-grants/s"] = append(figures[name+"-grants/s"], sum)
				figures[name+"-share"] = append(figures[name+"-share"], least*float64(len(all))/sum)
				figures[name+"-wait-ms"] = append(figures[name+"-wait-ms"], float64(longest)/1e6)
			}
		}
		b.ReportMetric(0, "ns/op")
		for unit, all := range figures {
			b.ReportMetric(median(all), unit)
		}
		b.ReportMetric(median(figures["ours-grants/s"])/median(figures["etcd-grants/s"]), "ratio-grants/s")
	})
}

// BenchmarkRetained is a pair of Lock and Unlock of a lock that is kept in between.
func BenchmarkRetained(b *testing.B) {
	onEach(b, []deployment{{1, true}}, func(b *testing.B, cluster *embedtest.Cluster) {
		one := ourProcess(b, cluster, etcdlock.WithRetention(time.Minute))
		for b.Loop() {
			unlock, err := one(b.Context())
			if err != nil || unlock(b.Context()) != nil {
				b.Fatal(err)
			}
		}
	})
}

// process locks the one name, as any of its goroutines.
type process func(context.Context) (unlock func(context.Context) error, err error)

func ourProcess(b *testing.B, cluster *embedtest.Cluster, opts ...etcdlock.Option) process {
	s, err := session.New(b.Context(), cluster.Client(b), session.WithTTL(benchTTL))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return ourContender(etcdlock.NewMutex(s, "bench", opts...)).lock
}

// theirProcess has its goroutines share a session of etcd's package behind a sync.Mutex: two
// goroutines on one session would both have the lock.
func theirProcess(b *testing.B, cluster *embedtest.Cluster) process {
	s, err := concurrency.NewSession(cluster.Client(b), concurrency.WithTTL(int(benchTTL.Seconds())))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	m := theirContender(concurrency.NewMutex(s, "concurrency/bench"))
	var local sync.Mutex
	return func(ctx context.Context) (func(context.Context) error, error) {
		local.Lock()
		unlock, err := m.lock(ctx)
		if err != nil {
			local.Unlock()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer local.Unlock()
			return unlock(ctx)
		}, nil
	}
}

// inTurns has so many goroutines of each process lock and unlock for a time of d. It returns the
// grants per second of each process, and the longest time that one was without a grant.
func inTurns(b *testing.B, d time.Duration, goroutines int, all []process) (grants []float64, longest time.Duration) {
	grants = make([]float64, len(all)) // these two are guarded by the lock
	last := make([]time.Time, len(all))
	start := time.Now()
	var working sync.WaitGroup
	for i, p := range all {
		last[i] = start
		for range goroutines {
			working.Go(func() {
				for {
					unlock, err := p(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					now := time.Now()
					longest = max(longest, now.Sub(last[i]))
					last[i] = now
					grants[i]++
					if err := unlock(b.Context()); err != nil || now.Sub(start) > d {
						return
					}
				}
			})
		}
	}
	working.Wait()
	for i := range grants {
		grants[i] /= time.Since(start).Seconds()
	}
	return grants, longest
}
