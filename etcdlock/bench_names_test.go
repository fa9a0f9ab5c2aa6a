package etcdlock_test

import (
	"context"
	"fmt"
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

// BenchmarkManyNames has goroutines of one process, on one session, lock and unlock names of
// their own, in slices of a second: what is under way at the same time goes out together.
func BenchmarkManyNames(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 256, 1024} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			onEach(b, []deployment{{1, true}, {1, false}, {3, true}}, func(b *testing.B, cluster *embedtest.Cluster) {
				sides := [][]contender{
					theirNames(b, cluster.Client(b), goroutines),
					ourNames(b, cluster.Client(b), goroutines),
				}
				var rates [2][]float64
				for b.Loop() {
					for i, all := range sides {
						rates[i] = append(rates[i], pairsPerSecond(b, all))
					}
				}
				theirs, ours := median(rates[0]), median(rates[1])
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(theirs, "etcd-pairs/s")
				b.ReportMetric(ours, "ours-pairs/s")
				b.ReportMetric(ours/theirs, "ratio")
			})
		})
	}
}

func pairsPerSecond(b *testing.B, all []contender) float64 {
	start := time.Now()
	var mu sync.Mutex
	pairs := 0
	run(b, all, func(c contender) error {
		own := 0
		for time.Since(start) < time.Second {
			unlock, err := c.lock(b.Context())
			if err != nil {
				return err
			}
			if err := unlock(b.Context()); err != nil {
				return err
			}
			own++
		}
		mu.Lock()
		pairs += own
		mu.Unlock()
		return nil
	})
	return float64(pairs) / time.Since(start).Seconds()
}

func ourNames(b *testing.B, client *clientv3.Client, n int) []contender {
	s, err := session.New(b.Context(), client, session.WithTTL(benchTTL))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	all := make([]contender, n)
	for i := range all {
		all[i] = ourContender(etcdlock.NewMutex(s, fmt.Sprintf("name-%d", i)))
	}
	return all
}

func theirNames(b *testing.B, client *clientv3.Client, n int) []contender {
	s, err := concurrency.NewSession(client, concurrency.WithTTL(int(benchTTL.Seconds())))
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	all := make([]contender, n)
	for i := range all {
		all[i] = theirContender(concurrency.NewMutex(s, fmt.Sprintf("concurrency/name-%d", i)))
	}
	return all
}
