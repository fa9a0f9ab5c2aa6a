package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// The benchmarks compare kinds of locks with a Mutex, by turns, in one process and on one cluster, so that they can be
// compared on a machine that is shared:
//
//	go test ./etcdlock -run '^$' -bench . -timeout 60m
//
// The time of an operation that Go prints is that of a round of all. The figures are the metrics: medians of each,
// and their ratios to the first. Module bench compares with etcd's own package and other locks: pairs, hot locks,
// herds, many names, fail-over, readers, memory, refused tries.

// benchTTL keeps renewals out of the figures.
const benchTTL = 5 * time.Minute

// contestant is a lock that is compared with others.
type contestant struct {
	name string
	lock func(src session.Source, name string) etcdlock.Locker
}

var mutex = contestant{"mutex", func(src session.Source, name string) etcdlock.Locker { return etcdlock.NewMutex(src, name) }}

// onEach runs f on a fresh cluster of one member, with fsync and without.
func onEach(b *testing.B, f func(b *testing.B, cluster *embedtest.Cluster)) {
	for _, fsync := range []bool{true, false} {
		b.Run(fmt.Sprintf("fsync=%v", fsync), func(b *testing.B) {
			opts := []embedtest.Option{embedtest.WithRealTicks()}
			if fsync {
				opts = append(opts, embedtest.WithFsync())
			}
			f(b, embedtest.Start(b, opts...))
		})
	}
}

// figures are what a round found, by unit.
type figures map[string]float64

// compare runs rounds of all contestants by turns, each with n sessions, and reports their medians and ratios.
func compare(b *testing.B, cluster *embedtest.Cluster, n int, all []contestant, round func(lockers []etcdlock.Locker) figures) {
	b.Helper()
	lockers, found := make([][]etcdlock.Locker, len(all)), make([]map[string][]float64, len(all))
	for i, c := range all {
		found[i] = map[string][]float64{}
		for range n {
			lockers[i] = append(lockers[i], c.lock(benchSession(b, cluster.Client(b)), "bench"))
		}
	}
	for b.Loop() {
		for i := range all {
			for unit, figure := range round(lockers[i]) {
				found[i][unit] = append(found[i][unit], figure)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for unit := range found[0] {
		for i, c := range all {
			b.ReportMetric(median(found[i][unit]), c.name+"-"+unit)
			if i > 0 {
				b.ReportMetric(median(found[i][unit])/median(found[0][unit]), "ratio-"+c.name+"-"+unit)
			}
		}
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func benchSession(b *testing.B, client *clientv3.Client) *session.Session {
	b.Helper()
	s, err := session.New(b.Context(), client, session.WithTTL(benchTTL))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// pair is one Lock and Unlock.
func pair(ctx context.Context, l etcdlock.Locker) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// onePair times a pair of the first.
func onePair(b *testing.B) func(lockers []etcdlock.Locker) figures {
	return func(lockers []etcdlock.Locker) figures {
		start := time.Now()
		require.NoError(b, pair(b.Context(), lockers[0]))
		return figures{"µs": float64(time.Since(start)) / float64(time.Microsecond)}
	}
}

// forAWhile has all lock and unlock as often as they can for half a second, and counts the pairs.
func forAWhile(b *testing.B) func(lockers []etcdlock.Locker) figures {
	return func(lockers []etcdlock.Locker) figures {
		start, pairs := time.Now(), make([]int, len(lockers))
		var working sync.WaitGroup
		for i, l := range lockers {
			working.Go(func() {
				for ; time.Since(start) < 500*time.Millisecond; pairs[i]++ {
					if err := pair(b.Context(), l); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		working.Wait()
		total := 0
		for _, n := range pairs {
			total += n
		}
		return figures{"pairs/s": float64(total) / time.Since(start).Seconds()}
	}
}

// BenchmarkUncontended is a pair of Lock and Unlock of a lock that nothing else wants, after so many
// acquisitions without a compaction.
func BenchmarkUncontended(b *testing.B) {
	for _, age := range []int{0, 100, 100_000} {
		b.Run(fmt.Sprintf("acquisitions=%d", age), func(b *testing.B) {
			onEach(b, func(b *testing.B, cluster *embedtest.Cluster) {
				l := mutex.lock(benchSession(b, cluster.Client(b)), "bench")
				for range age {
					require.NoError(b, pair(b.Context(), l))
				}
				for b.Loop() {
					require.NoError(b, pair(b.Context(), l))
				}
			})
		})
	}
}

// BenchmarkSemaphore has 8 sessions take and give back permits: of one permit, which is as much as a Mutex, and of four.
func BenchmarkSemaphore(b *testing.B) {
	semaphore := func(name string, size int64, opts ...etcdlock.Option) contestant {
		return contestant{name, func(src session.Source, lock string) etcdlock.Locker {
			return etcdlock.NewSemaphore(src, lock+name, size, opts...)
		}}
	}
	all := []contestant{mutex, semaphore("one", 1), semaphore("four", 4), semaphore("slots", 4, etcdlock.WithSlots())}
	onEach(b, func(b *testing.B, cluster *embedtest.Cluster) { compare(b, cluster, 8, all, forAWhile(b)) })
}

// BenchmarkMulti takes several free names at once.
func BenchmarkMulti(b *testing.B) {
	all := []contestant{mutex}
	for _, names := range []int{1, 4, 16} {
		all = append(all, contestant{fmt.Sprint(names), func(src session.Source, name string) etcdlock.Locker {
			var locks []etcdlock.Lockable
			for i := range names {
				locks = append(locks, etcdlock.NewMutex(src, fmt.Sprint(name, names, "-", i)))
			}
			return etcdlock.NewMulti(src, locks...)
		}})
	}
	onEach(b, func(b *testing.B, cluster *embedtest.Cluster) { compare(b, cluster, 1, all, onePair(b)) })
}

// BenchmarkLocalHandover has eight goroutines of one process hand one lock on. Other processes would wait for at
// most 20 ms.
func BenchmarkLocalHandover(b *testing.B) {
	handedOn := contestant{"local", func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewMutex(src, name, etcdlock.WithLocalHandover(20*time.Millisecond, 1_000_000))
	}}
	onEach(b, func(b *testing.B, cluster *embedtest.Cluster) {
		compare(b, cluster, 1, []contestant{mutex, handedOn}, func(lockers []etcdlock.Locker) figures {
			return forAWhile(b)(slices.Repeat(lockers, 8))
		})
	})
}

// BenchmarkRetained is a pair of Lock and Unlock of a lock that is kept in between.
func BenchmarkRetained(b *testing.B) {
	onEach(b, func(b *testing.B, cluster *embedtest.Cluster) {
		l := etcdlock.NewMutex(benchSession(b, cluster.Client(b)), "bench", etcdlock.WithRetention(time.Minute))
		for b.Loop() {
			require.NoError(b, pair(b.Context(), l))
		}
	})
}
