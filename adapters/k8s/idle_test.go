package k8slock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestACandidateThatIsNotCalledLeavesTheLineUnlessItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
		candidate := func(identity string) *k8slock.Lock {
			clock := session.WithClock(func() time.Duration { return time.Since(began) })
			l := k8slock.New(keep(t, cluster.Client(t), clock), name, identity)
			t.Cleanup(func() { finish(l) })
			return l
		}
		election := etcdlock.NewElection(session.Keep(cluster.Client(t)), name) // without a session
		leader := func() string {
			leader, err := election.Leader(t.Context())
			if err != nil {
				require.ErrorIs(t, err, etcdlock.ErrNoLeader)
			}
			return leader.Value
		}

		l := candidate("a")
		require.Equal(t, answer{}, <-get(t.Context(), l))
		time.Sleep(29 * time.Second)
		require.Equal(t, "a", leader())
		time.Sleep(2 * time.Second)
		require.Empty(t, leader(), "client-go has not taken the term, and does not call")

		lead(t, l)
		ctx, stop := context.WithCancel(t.Context())
		standby := candidate("b")
		require.Equal(t, answer{holder: "a"}, <-get(ctx, standby))
		news := get(ctx, standby)
		time.Sleep(time.Hour)
		require.Equal(t, "a", leader(), "it leads, and its calls may be far apart")
		inLine(t, cluster.Client(t), 1)
		stop()
		require.ErrorIs(t, (<-news).err, context.Canceled)
		time.Sleep(31 * time.Second)
		inLine(t, cluster.Client(t), 0)

		l.RecordEvent("stopped leading") // and does not release
		time.Sleep(29 * time.Second)
		require.Equal(t, "a", leader())
		time.Sleep(2 * time.Second)
		require.Empty(t, leader())
	})
}
