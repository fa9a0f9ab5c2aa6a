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

// The benchmarks run every workload with this package and with etcd's own, in the same
// process and on the same cluster, so that the two can be compared whatever the machine:
//
//	go test ./etcdlock -run '^$' -bench . -count 5 > new.txt
//	benchstat -col /impl new.txt
//
// Figures of different runs, or of busy machines, do not compare.

// benchTTL keeps renewals out of the figures.
const benchTTL = 5 * time.Minute

// contender is one session with a lock of either implementation.
type contender struct {
	lock  func(ctx context.Context) (unlock func(context.Context) error, err error)
	try   func(ctx context.Context) error // of a lock that is held: refused
	close func(ctx context.Context) error
}

// implementations are what is compared: a session on the client, and a lock on it.
var implementations = []struct {
	name string
	new  func(ctx context.Context, c *clientv3.Client, name string) (contender, error)
}{
	{"etcd", newTheirs},
	{"etcdlock", newOurs},
}

func newOurs(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := session.New(ctx, c, session.WithTTL(benchTTL))
	if err != nil {
		return contender{}, err
	}
	m := etcdlock.NewMutex(s, name)
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
		close: s.Close,
	}, nil
}

func newTheirs(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(benchTTL.Seconds())))
	if err != nil {
		return contender{}, err
	}
	m := concurrency.NewMutex(s, "concurrency/"+name)
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
		close: func(context.Context) error { return s.Close() },
	}, nil
}

// deployment is a cluster to measure on.
type deployment struct {
	nodes int
	fsync bool
}

var deployments = []deployment{{1, true}, {1, false}, {3, true}, {3, false}}

// onEach runs f for every deployment and implementation, on a fresh cluster for each
// deployment. f gets a function that creates contenders on clients of their own.
func onEach(b *testing.B, on []deployment, f func(b *testing.B, join func(n int, name string) []contender)) {
	for _, d := range on {
		b.Run(fmt.Sprintf("nodes=%d/fsync=%v", d.nodes, d.fsync), func(b *testing.B) {
			opts := []embedtest.Option{embedtest.WithSize(d.nodes)}
			if d.fsync {
				opts = append(opts, embedtest.WithFsync())
			}
			cluster := embedtest.Start(b, opts...)
			for _, impl := range implementations {
				b.Run("impl="+impl.name, func(b *testing.B) {
					f(b, func(n int, name string) []contender {
						return newContenders(b, cluster, impl.new, n, name)
					})
				})
			}
		})
	}
}

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

func BenchmarkUncontended(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, join func(int, string) []contender) {
		c := join(1, b.Name())[0]
		b.ReportAllocs()
		for b.Loop() {
			pair(b, c)
		}
	})
}

// BenchmarkUncontendedAged shows that an old lock is as fast as a new one, although
// nothing is compacted meanwhile.
func BenchmarkUncontendedAged(b *testing.B) {
	for _, age := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("acquisitions=%d", age), func(b *testing.B) {
			onEach(b, []deployment{{1, false}}, func(b *testing.B, join func(int, string) []contender) {
				c := join(1, b.Name())[0]
				for range age {
					pair(b, c)
				}
				for b.Loop() {
					pair(b, c)
				}
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

// BenchmarkHotLock has every session lock and unlock as often as it can. An operation
// is one grant. A hand-over lasts from the call of Unlock to the return of the next Lock.
func BenchmarkHotLock(b *testing.B) {
	for _, sessions := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			onEach(b, deployments, func(b *testing.B, join func(int, string) []contender) {
				all := join(sessions, b.Name())
				var (
					left      = b.N // guarded by the lock, like the rest
					released  time.Time
					handovers []time.Duration
				)
				b.ResetTimer()
				run(b, all, func(c contender) error {
					for {
						unlock, err := c.lock(b.Context())
						if err != nil {
							return err
						}
						if !released.IsZero() {
							handovers = append(handovers, time.Since(released))
						}
						left--
						done := left < 0
						released = time.Now()
						if err := unlock(b.Context()); err != nil || done {
							return err
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
				b.ReportMetric(percentile(handovers, 50), "p50-µs")
				b.ReportMetric(percentile(handovers, 99), "p99-µs")
			})
		})
	}
}

// BenchmarkHerd has all waiters join at the same moment and measures until all have
// been served. An operation is a whole herd.
func BenchmarkHerd(b *testing.B) {
	for _, waiters := range []int{1000, 2000, 5000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			onEach(b, []deployment{{1, true}, {1, false}}, func(b *testing.B, join func(int, string) []contender) {
				all := join(waiters, b.Name())
				for b.Loop() {
					run(b, all, func(c contender) error {
						unlock, err := c.lock(b.Context())
						if err != nil {
							return err
						}
						return unlock(b.Context())
					})
				}
				b.ReportMetric(float64(b.N*waiters)/b.Elapsed().Seconds(), "grants/s")
			})
		})
	}
}

func BenchmarkRefusedTryLock(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, join func(int, string) []contender) {
		all := join(2, b.Name())
		unlock, err := all[0].lock(b.Context())
		require.NoError(b, err)
		for b.Loop() {
			if err := all[1].try(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		require.NoError(b, unlock(b.Context()))
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

func percentile(of []time.Duration, p int) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return float64(of[len(of)*p/100]) / float64(time.Microsecond)
}
