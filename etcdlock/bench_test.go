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
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// The benchmarks run every workload with this package and with etcd's own, or with a Mutex, by turns, in one
// process and on one cluster, so that the two can be compared on a machine that is shared:
//
//	go test ./etcdlock -run '^$' -bench . -timeout 60m
//
// The time of an operation that Go prints is that of a round of both. The figures are the
// metrics: medians of each implementation, and their ratio, more than 1 where we are
// slower (µs) or faster (/s). Module bench compares more: fail-over, readers, memory, refused tries, other locks.

// benchTTL keeps renewals out of the figures.
const benchTTL = 5 * time.Minute

// contender is one session with a lock of either implementation.
type contender struct {
	lock  lockFunc
	close func(ctx context.Context) error
}

type lockFunc func(ctx context.Context) (unlock func(context.Context) error, err error)

// implementation is a session on the client, and a lock on it.
type implementation struct {
	name string
	new  func(ctx context.Context, c *clientv3.Client, name string) (contender, error)
}

// implementations are what is compared, ratios being those of the second to the first.
var implementations = []implementation{{"etcd", newTheirs}, {"ours", newOurs}}

var newOurs = ours("ours", func(s *session.Session, name string) etcdlock.Locker { return etcdlock.NewMutex(s, name) }).new

// ours makes an implementation of any lock of this package.
func ours(name string, lock func(s *session.Session, name string) etcdlock.Locker) implementation {
	return implementation{name, func(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
		s, err := session.New(ctx, c, session.WithTTL(benchTTL))
		if err != nil {
			return contender{}, err
		}
		return contender{lockerFunc(lock(s, name)), s.Close}, nil
	}}
}

func lockerFunc(l etcdlock.Locker) lockFunc {
	return func(ctx context.Context) (func(context.Context) error, error) {
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

func newTheirs(_ context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(benchTTL.Seconds())))
	if err != nil {
		return contender{}, err
	}
	return contender{theirFunc(s, name), func(context.Context) error { return s.Close() }}, nil
}

func theirFunc(s *concurrency.Session, name string) lockFunc {
	m := concurrency.NewMutex(s, "concurrency/"+name)
	return func(ctx context.Context) (func(context.Context) error, error) {
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return m.Unlock, nil
	}
}

// deployment is a cluster to measure on.
type deployment struct {
	nodes int
	fsync bool
}

var (
	deployments = []deployment{{1, true}, {1, false}, {3, true}, {3, false}}
	oneNode     = deployments[:2]
)

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

// figures are what a round found, by unit.
type figures map[string]float64

// duel runs rounds of both implementations by turns until the benchmark has had enough, each with n contenders.
func duel(b *testing.B, cluster *embedtest.Cluster, n int, round func(all []contender) figures) {
	b.Helper()
	match(b, cluster, implementations, n, round)
}

// match is duel with implementations of choice, of which the first is what the others are
// compared with.
func match(b *testing.B, cluster *embedtest.Cluster, of []implementation, n int, round func(all []contender) figures) {
	b.Helper()
	sides := make([][]contender, len(of))
	for i, impl := range of {
		sides[i] = newContenders(b, cluster, impl, n, "bench")
	}
	compare(b, of, func(i int) figures { return round(sides[i]) })
}

// compare runs rounds of all implementations by turns, and reports their medians and ratios.
func compare(b *testing.B, of []implementation, round func(i int) figures) {
	b.Helper()
	all := make([]map[string][]float64, len(of))
	for b.Loop() {
		for i := range of {
			if all[i] == nil {
				all[i] = map[string][]float64{}
			}
			for unit, figure := range round(i) {
				all[i][unit] = append(all[i][unit], figure)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for unit := range all[0] {
		base := percentile(all[0][unit], 50)
		b.ReportMetric(base, of[0].name+"-"+unit)
		for i, impl := range of[1:] {
			figure := percentile(all[i+1][unit], 50)
			b.ReportMetric(figure, impl.name+"-"+unit)
			ratio := "ratio-"
			if len(of) > 2 {
				ratio += impl.name + "-"
			}
			b.ReportMetric(figure/base, ratio+unit)
		}
	}
}

func percentile(of []float64, p int) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)*p/100]
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// newContenders spreads n sessions over at most 16 clients.
func newContenders(b *testing.B, cluster *embedtest.Cluster, impl implementation, n int, name string) []contender {
	b.Helper()
	clients := make([]*clientv3.Client, min(n, 16))
	for i := range clients {
		clients[i] = cluster.Client(b)
	}
	all := make([]contender, n)
	for i := range all {
		var err error
		all[i], err = impl.new(b.Context(), clients[i%len(clients)], name)
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

// pair is one Lock and Unlock.
func (c contender) pair(b *testing.B) error {
	unlock, err := c.lock(b.Context())
	if err != nil {
		return err
	}
	return unlock(b.Context())
}

// onePair times a pair.
func onePair(b *testing.B) func(all []contender) figures {
	return func(all []contender) figures {
		start := time.Now()
		require.NoError(b, all[0].pair(b))
		return figures{"µs": microseconds(time.Since(start))}
	}
}

// inSlices has every contender lock and unlock as often as it can for a while, and
// reports how many pairs there were, and how long one took.
func inSlices(b *testing.B, slice time.Duration) func(all []contender) figures {
	return func(all []contender) figures {
		var mu sync.Mutex
		var took []float64
		start := time.Now()
		run(b, all, func(c contender) error {
			var mine []float64
			for time.Since(start) < slice {
				began := time.Now()
				if err := c.pair(b); err != nil {
					return err
				}
				mine = append(mine, microseconds(time.Since(began)))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			return nil
		})
		return figures{"pairs/s": float64(len(took)) / time.Since(start).Seconds(), "p50-µs": percentile(took, 50)}
	}
}

// BenchmarkUncontended is a pair of Lock and Unlock of a lock that nobody else wants, at first and after so many
// acquisitions without a compaction.
func BenchmarkUncontended(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) { duel(b, cluster, 1, onePair(b)) })
	for _, age := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("acquisitions=%d", age), func(b *testing.B) {
			onEach(b, []deployment{{1, false}}, func(b *testing.B, cluster *embedtest.Cluster) {
				aged := make(map[*contender]bool)
				duel(b, cluster, 1, func(all []contender) figures {
					for i := 0; i < age && !aged[&all[0]]; i++ {
						require.NoError(b, all[0].pair(b))
					}
					aged[&all[0]] = true
					return onePair(b)(all)
				})
			})
		})
	}
}

// BenchmarkHotLock has every session lock and unlock as often as it can, in slices of half
// a second. A hand-over lasts from the call of Unlock to the return of the next Lock.
func BenchmarkHotLock(b *testing.B) {
	for _, sessions := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
				duel(b, cluster, sessions, func(all []contender) figures {
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
					return figures{
						"grants/s": float64(len(handovers)) / time.Since(start).Seconds(),
						"p50-µs":   percentile(handovers, 50),
						"p99-µs":   percentile(handovers, 99),
					}
				})
			})
		})
	}
}

// BenchmarkHerd has all waiters join at the same moment and lasts until all have been
// served. etcd's own runs into its time-outs with 5,000, so there we are alone.
func BenchmarkHerd(b *testing.B) {
	for _, waiters := range []int{1000, 2000, 5000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) {
				of := implementations
				if waiters > 2000 {
					of = of[1:]
				}
				match(b, cluster, of, waiters, func(all []contender) figures {
					start := time.Now()
					run(b, all, func(c contender) error { return c.pair(b) })
					return figures{"s": time.Since(start).Seconds()}
				})
			})
		})
	}
}

// BenchmarkManyNames has goroutines of one process, on one session, lock and unlock names of
// their own, in slices of a second: what is under way at the same time goes out together.
func BenchmarkManyNames(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 256, 1024} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			onEach(b, deployments[:3], func(b *testing.B, cluster *embedtest.Cluster) {
				s, err := session.New(b.Context(), cluster.Client(b), session.WithTTL(benchTTL))
				require.NoError(b, err)
				theirs, err := concurrency.NewSession(cluster.Client(b), concurrency.WithTTL(int(benchTTL.Seconds())))
				require.NoError(b, err)
				b.Cleanup(func() { _, _ = s.Close(context.Background()), theirs.Close() })
				var sides [2][]contender
				for i := range goroutines {
					name := fmt.Sprintf("name-%d", i)
					sides[0] = append(sides[0], contender{lock: theirFunc(theirs, name)})
					sides[1] = append(sides[1], contender{lock: lockerFunc(etcdlock.NewMutex(s, name))})
				}
				round := inSlices(b, time.Second)
				compare(b, implementations, func(i int) figures { return round(sides[i]) })
			})
		})
	}
}

// BenchmarkSemaphore has 8 sessions take and give back permits, compared with a Mutex in the
// same run: of one permit, which is as much as a Mutex, and of four.
func BenchmarkSemaphore(b *testing.B) {
	semaphore := func(size int64, opts ...etcdlock.Option) func(s *session.Session, name string) etcdlock.Locker {
		return func(s *session.Session, name string) etcdlock.Locker {
			return etcdlock.NewSemaphore(s, fmt.Sprint(name, size, len(opts)), size, opts...)
		}
	}
	onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) {
		match(b, cluster, []implementation{
			{"mutex", newOurs}, ours("one", semaphore(1)), ours("four", semaphore(4)), ours("slots", semaphore(4, etcdlock.WithSlots())),
		}, 8, inSlices(b, 500*time.Millisecond))
	})
}

// BenchmarkMulti takes several free names at once, compared with a Mutex for a single one.
func BenchmarkMulti(b *testing.B) {
	of := []implementation{{"mutex", newOurs}}
	for _, names := range []int{1, 4, 16} {
		of = append(of, ours(fmt.Sprint(names), func(s *session.Session, name string) etcdlock.Locker {
			var all []etcdlock.Lockable
			for i := range names {
				all = append(all, etcdlock.NewMutex(s, fmt.Sprint(name, names, "-", i)))
			}
			return etcdlock.NewMulti(s, all...)
		}))
	}
	onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) { match(b, cluster, of, 1, onePair(b)) })
}

// localMutex returns a mutex that goroutines share.
func localMutex(b *testing.B, cluster *embedtest.Cluster, opt etcdlock.Option) contender {
	s, err := session.New(b.Context(), cluster.Client(b), session.WithTTL(benchTTL))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return contender{lock: lockerFunc(etcdlock.NewMutex(s, "bench", opt))}
}

// BenchmarkLocalHandover has eight goroutines of one process hand one lock on, for half a second
// each time; others would wait for at most 20 ms.
func BenchmarkLocalHandover(b *testing.B) {
	onEach(b, oneNode[:1], func(b *testing.B, cluster *embedtest.Cluster) {
		all := slices.Repeat([]contender{localMutex(b, cluster, etcdlock.WithLocalHandover(20*time.Millisecond, 1_000_000))}, 8)
		compare(b, implementations[1:], func(int) figures {
			start, grants := time.Now(), 0 // guarded by the lock
			run(b, all, func(c contender) error {
				for over := false; !over; {
					unlock, err := c.lock(b.Context())
					if err != nil {
						return err
					}
					grants++
					over = time.Since(start) > 500*time.Millisecond
					if err := unlock(b.Context()); err != nil {
						return err
					}
				}
				return nil
			})
			return figures{"grants/s": float64(grants) / time.Since(start).Seconds()}
		})
	})
}

// BenchmarkRetained is a pair of Lock and Unlock of a lock that is kept in between.
func BenchmarkRetained(b *testing.B) {
	onEach(b, oneNode[:1], func(b *testing.B, cluster *embedtest.Cluster) {
		one := localMutex(b, cluster, etcdlock.WithRetention(time.Minute))
		for b.Loop() {
			if err := one.pair(b); err != nil {
				b.Fatal(err)
			}
		}
	})
}
