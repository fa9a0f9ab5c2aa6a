package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// The benchmarks run every workload with this package and with etcd's own by turns, in one
// process and on one cluster, so that the two can be compared on a machine that is shared
// (BenchmarkJoin and BenchmarkWaiterWeight one after the other):
//
//	go test ./etcdlock -run '^$' -bench . -timeout 60m
//
// The time of an operation that Go prints is that of a round of both. The figures are the
// metrics: medians of each implementation, and their ratio, more than 1 where we are
// slower (µs) or faster (/s).

// benchTTL keeps renewals out of the figures.
const benchTTL = 5 * time.Minute

// contender is one session with a lock of either implementation.
type contender struct {
	lock  func(ctx context.Context) (unlock func(context.Context) error, err error)
	try   func(ctx context.Context) error // of a lock that is held: refused
	close func(ctx context.Context) error
}

// implementation is a session on the client, and a lock on it.
type implementation struct {
	name string
	new  func(ctx context.Context, c *clientv3.Client, name string) (contender, error)
}

// implementations are what is compared, ratios being those of the second to the first.
var implementations = []implementation{{"etcd", newTheirs}, {"ours", newOurs}}

func newOurs(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := session.New(ctx, c, session.WithTTL(benchTTL))
	if err != nil {
		return contender{}, err
	}
	one := ourContender(etcdlock.NewMutex(s, name))
	one.close = s.Close
	return one, nil
}

func ourContender(m etcdlock.Locker) contender {
	return contender{
		lock: func(ctx context.Context) (func(context.Context) error, error) {
			h, err := m.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		},
		try: func(ctx context.Context) error {
			if _, err := m.TryLock(ctx); !errors.Is(err, etcdlock.ErrBusy) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
	}
}

func newTheirs(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(benchTTL.Seconds())))
	if err != nil {
		return contender{}, err
	}
	one := theirContender(concurrency.NewMutex(s, "concurrency/"+name))
	one.close = func(context.Context) error { return s.Close() }
	return one, nil
}

func theirContender(m *concurrency.Mutex) contender {
	return contender{
		lock: func(ctx context.Context) (func(context.Context) error, error) {
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		},
		try: func(ctx context.Context) error {
			if err := m.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
	}
}

// deployment is a cluster to measure on.
type deployment struct {
	nodes int
	fsync bool
}

var deployments = []deployment{{1, true}, {1, false}, {3, true}, {3, false}}

// onEach runs f for every deployment, on a fresh cluster.
func onEach(b *testing.B, on []deployment, f func(b *testing.B, cluster *embedtest.Cluster)) {
	for _, d := range on {
		b.Run(fmt.Sprintf("nodes=%d/fsync=%v", d.nodes, d.fsync), func(b *testing.B) {
			opts := []embedtest.Option{embedtest.WithSize(d.nodes), embedtest.WithRealTicks()}
			if d.fsync {
				opts = append(opts, embedtest.WithFsync())
			}
			f(b, embedtest.Start(b, opts...))
		})
	}
}

// duel runs rounds of both implementations by turns until the benchmark has had enough.
// A round gets n contenders and returns its figures by unit.
func duel(b *testing.B, cluster *embedtest.Cluster, n int, round func(all []contender) map[string]float64) {
	b.Helper()
	match(b, cluster, implementations, n, round)
}

// match is duel with implementations of choice, of which the first is what the others are
// compared with.
func match(b *testing.B, cluster *embedtest.Cluster, of []implementation, n int, round func(all []contender) map[string]float64) {
	b.Helper()
	sides := make([][]contender, len(of))
	figures := make([]map[string][]float64, len(of))
	for i, impl := range of {
		sides[i] = newContenders(b, cluster, impl.new, n, "bench")
		figures[i] = make(map[string][]float64)
	}
	for b.Loop() {
		for i, all := range sides {
			for unit, figure := range round(all) {
				figures[i][unit] = append(figures[i][unit], figure)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for unit := range figures[0] {
		base := median(figures[0][unit])
		b.ReportMetric(base, of[0].name+"-"+unit)
		for i, impl := range of[1:] {
			figure := median(figures[i+1][unit])
			b.ReportMetric(figure, impl.name+"-"+unit)
			ratio := "ratio-"
			if len(of) > 2 {
				ratio += impl.name + "-"
			}
			b.ReportMetric(figure/base, ratio+unit)
		}
	}
}

func median(of []float64) float64 { return percentile(of, 50) }

func percentile(of []float64, p int) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)*p/100]
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// newContenders spreads n sessions over at most 16 clients.
func newContenders(b *testing.B, cluster *embedtest.Cluster,
	create func(context.Context, *clientv3.Client, string) (contender, error), n int, name string) []contender {
	b.Helper()
	clients := make([]*clientv3.Client, min(n, 16))
	for i := range clients {
		clients[i] = cluster.Client(b)
	}
	all := make([]contender, n)
	for i := range all {
		var err error
		all[i], err = create(b.Context(), clients[i%len(clients)], name)
		require.NoError(b, err)
	}
	b.Cleanup(func() {
		var closing sync.WaitGroup
		for _, c := range all {
			closing.Go(func() { _ = c.close(context.Background()) })
		}
		closing.Wait()
	})
	return all
}

// BenchmarkUncontended is a pair of Lock and Unlock of a lock that nobody else wants.
func BenchmarkUncontended(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
		duel(b, cluster, 1, func(all []contender) map[string]float64 {
			start := time.Now()
			pair(b, all[0])
			return map[string]float64{"µs": microseconds(time.Since(start))}
		})
	})
}

// BenchmarkUncontendedAged is the same after so many acquisitions, and no compaction.
func BenchmarkUncontendedAged(b *testing.B) {
	for _, age := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("acquisitions=%d", age), func(b *testing.B) {
			onEach(b, []deployment{{1, false}}, func(b *testing.B, cluster *embedtest.Cluster) {
				aged := make(map[*contender]bool)
				duel(b, cluster, 1, func(all []contender) map[string]float64 {
					for i := 0; i < age && !aged[&all[0]]; i++ {
						pair(b, all[0])
					}
					aged[&all[0]] = true
					start := time.Now()
					pair(b, all[0])
					return map[string]float64{"µs": microseconds(time.Since(start))}
				})
			})
		})
	}
}

func pair(b *testing.B, c contender) {
	unlock, err := c.lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := unlock(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHotLock has every session lock and unlock as often as it can, in slices of half
// a second. A hand-over lasts from the call of Unlock to the return of the next Lock.
func BenchmarkHotLock(b *testing.B) {
	for _, sessions := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
				duel(b, cluster, sessions, func(all []contender) map[string]float64 {
					var ( // guarded by the lock
						start     = time.Now()
						released  time.Time
						handovers []float64
					)
					run(b, all, func(c contender) error {
						for {
							unlock, err := c.lock(b.Context())
							if err != nil {
								return err
							}
							if !released.IsZero() {
								handovers = append(handovers, microseconds(time.Since(released)))
							}
							done := time.Since(start) > 500*time.Millisecond
							released = time.Now()
							if err := unlock(b.Context()); err != nil || done {
								return err
							}
						}
					})
					return map[string]float64{
						"grants/s": float64(len(handovers)) / time.Since(start).Seconds(),
						"p50-µs":   percentile(handovers, 50),
						"p99-µs":   percentile(handovers, 99),
					}
				})
			})
		})
	}
}

// BenchmarkFloor is what a hand-over cannot be faster than: from the call that deletes a
// key until a watcher on another client sees it.
func BenchmarkFloor(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
		writer, reader := cluster.Client(b), cluster.Client(b)
		events := reader.Watch(b.Context(), "floor", clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
		<-events
		var seen []float64
		for b.Loop() {
			_, err := writer.Put(b.Context(), "floor", "")
			require.NoError(b, err)
			start := time.Now()
			deleted := make(chan error, 1)
			go func() {
				_, err := writer.Delete(b.Context(), "floor")
				deleted <- err
			}()
			<-events
			seen = append(seen, microseconds(time.Since(start)))
			require.NoError(b, <-deleted)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(percentile(seen, 50), "p50-µs")
		b.ReportMetric(percentile(seen, 99), "p99-µs")
	})
}

// BenchmarkHerd has all waiters join at the same moment and lasts until all have been
// served. etcd's own runs into its time-outs with 5,000, so there we are alone.
func BenchmarkHerd(b *testing.B) {
	for _, waiters := range []int{1000, 2000, 5000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			onEach(b, []deployment{{1, true}, {1, false}}, func(b *testing.B, cluster *embedtest.Cluster) {
				herd := func(all []contender) map[string]float64 {
					start := time.Now()
					run(b, all, func(c contender) error {
						unlock, err := c.lock(b.Context())
						if err != nil {
							return err
						}
						return unlock(b.Context())
					})
					return map[string]float64{"s": time.Since(start).Seconds()}
				}
				if waiters <= 2000 {
					duel(b, cluster, waiters, herd)
					return
				}
				all := newContenders(b, cluster, newOurs, waiters, "bench")
				for b.Loop() {
					b.ReportMetric(herd(all)["s"], "ours-s")
				}
			})
		})
	}
}

// BenchmarkRefusedTryLock tries a lock that is held.
func BenchmarkRefusedTryLock(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
		held := make(map[*contender]bool)
		duel(b, cluster, 2, func(all []contender) map[string]float64 {
			if !held[&all[0]] {
				held[&all[0]] = true
				if _, err := all[0].lock(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			start := time.Now()
			if err := all[1].try(b.Context()); err != nil {
				b.Fatal(err)
			}
			return map[string]float64{"µs": microseconds(time.Since(start))}
		})
	})
}

// run has every contender at work at once and waits for all.
func run(b *testing.B, all []contender, work func(contender) error) {
	var working sync.WaitGroup
	errs := make(chan error, len(all))
	for _, c := range all {
		working.Go(func() { errs <- work(c) })
	}
	working.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if err != nil {
			if failed == 0 {
				b.Log(err)
			}
			failed++
		}
	}
	if failed > 0 {
		b.Fatalf("%d of %d failed", failed, len(all))
	}
}
