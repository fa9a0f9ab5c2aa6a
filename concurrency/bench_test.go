package concurrency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
)

// BenchmarkHandOver has sessions lock and unlock one name as often as they can. An operation is one grant.
func BenchmarkHandOver(b *testing.B) {
	cluster := embedtest.Start(b)
	ctx := context.Background()
	for name, k := range map[string]kit{"here": ours, "etcd": etcds} {
		b.Run(name, func(b *testing.B) {
			const sessions = 2
			var mutexes []mutex
			for range sessions {
				client := cluster.Client(b)
				s, err := k.newSession(ctx, client, 30)
				require.NoError(b, err)
				b.Cleanup(func() { _ = s.Close() })
				mutexes = append(mutexes, k.newMutex(s, "hot "+name))
			}
			b.ResetTimer()
			var working sync.WaitGroup
			for i, m := range mutexes {
				working.Go(func() {
					for n := i; n < b.N; n += sessions {
						if err := m.Lock(ctx); err != nil {
							b.Error(err)
							return
						}
						if err := m.Unlock(ctx); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			working.Wait()
		})
	}
}
