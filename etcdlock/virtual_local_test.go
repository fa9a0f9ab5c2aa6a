package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// Each without a deadline has 10 s, as without a line.
func TestWithoutASessionCallersOfALocalLineGiveUpAtTheSameTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		m := etcdlock.NewMutex(virtualKeeper(t, cluster.Client(t)), "orders", handedOn)
		silence := cluster.LoseRequest("LeaseGrant")
		start := time.Now()
		var returned []<-chan time.Time
		for range 3 {
			returned = append(returned, stopwatch(func() {
				_, err := m.Lock(context.Background())
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}))
		}
		for _, r := range returned {
			require.Equal(t, 10*time.Second, (<-r).Sub(start))
		}
		silence.Heal()
		unlock(t, lock(t, m))
	})
}

// The time begins when the lock is unlocked, however long it was held.
func TestALockIsKeptForItsTimeAfterALongHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		m := etcdlock.NewMutex(virtualKeeper(t, client), "orders", etcdlock.WithRetention(5*time.Second))
		h := lock(t, m)
		time.Sleep(time.Minute)
		unlock(t, h)
		time.Sleep(4 * time.Second)
		require.Equal(t, 1, tickets(t, client))
		time.Sleep(2 * time.Second)
		require.Zero(t, tickets(t, client))
	})
}
