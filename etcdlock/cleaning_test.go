package etcdlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// What is removed in the background does not wait for a removal whose answer is lost.
func TestALostAnswerDelaysNoOtherRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		s := virtualSession(t, cluster.Client(t))
		var answers atomic.Int64
		cluster.Delay("Txn", time.Millisecond)
		cluster.LoseReply("Txn", embedtest.When(func(any) bool { return answers.Add(1)%30 == 0 }))
		permits := etcdlock.NewSemaphore(s, "permits", 8)
		end := time.Now().Add(5 * time.Second)
		var grants atomic.Int64
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					h, err := permits.Lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					grants.Add(1)
					ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
					_ = h.Unlock(ctx)
					cancel()
				}
			})
		}
		callers.Wait()
		require.Greater(t, grants.Load(), int64(500))
	})
}

// A release that etcd refuses for the moment is tried again every second or so.
func TestARefusedReleaseComesSoonAfterTheRefusalsEnd(t *testing.T) {
	for name, refusal := range map[string]error{"corrupt": rpctypes.ErrGRPCCorrupt, "no space": rpctypes.ErrGRPCNoSpace} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
				client := cluster.Client(t)
				h := lock(t, etcdlock.NewMutex(virtualSession(t, client), "orders"))
				refused := cluster.Refuse("Txn", refusal)
				require.Error(t, h.Unlock(t.Context()))
				time.Sleep(time.Minute)
				require.Equal(t, 1, tickets(t, client))
				refused.Heal()
				time.Sleep(2 * time.Second)
				require.Zero(t, tickets(t, client))
			})
		})
	}
}
