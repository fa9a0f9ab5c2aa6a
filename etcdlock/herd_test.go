package etcdlock_test

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var herd = flag.Int("herd", 1000, "waiters of TestAHerdIsServedInOrder")

// Scenario W10. Run it with -herd=10000 -timeout=30m for the large one.
func TestAHerdIsServedInOrder(t *testing.T) {
	const sessions = 20
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var mutexes []*etcdlock.Mutex
	for range sessions {
		s, err := session.New(ctx, cluster.Client(t), session.WithTTL(longTTL))
		require.NoError(t, err)
		defer s.Close(context.Background())
		mutexes = append(mutexes, etcdlock.NewMutex(s, "orders"))
	}

	var served []etcdlock.Token // guarded by the lock
	done := make(chan error, *herd)
	for i := range *herd {
		go func() {
			h, err := mutexes[i%sessions].Lock(ctx)
			if err == nil {
				served = append(served, h.Token())
				err = h.Unlock(ctx)
			}
			done <- err
		}()
	}
	for range *herd {
		require.NoError(t, <-done)
	}
	require.Len(t, served, *herd)
	require.True(t, slices.IsSorted(served), "grants follow the order of the create revisions")
	require.Len(t, slices.Compact(served), *herd)
	require.Zero(t, tickets(t, cluster.Client(t)))
}
