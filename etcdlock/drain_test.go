package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// draining starts to drain, and waits until newcomers are refused.
func draining(t *testing.T, k *session.Keeper) <-chan error {
	t.Helper()
	drained := background(func() error { return k.Drain(within(t)) })
	require.Eventually(t, func() bool {
		_, err := k.Session(within(t))
		return err != nil
	}, patience, waitABit)
	return drained
}

func TestDrainWaitsForTheLastHoldAndWait(t *testing.T) {
	for name, kind := range map[string]func(session.Source) etcdlock.Locker{
		"mutex": func(s session.Source) etcdlock.Locker { return etcdlock.NewMutex(s, "a") },
		"hand-over": func(s session.Source) etcdlock.Locker {
			return etcdlock.NewMutex(s, "a", etcdlock.WithLocalHandover(time.Hour, 100))
		},
		"retention": func(s session.Source) etcdlock.Locker { return etcdlock.NewMutex(s, "a", kept) },
		"writer":    func(s session.Source) etcdlock.Locker { return etcdlock.NewRWMutex(s, "a") },
		"permit":    func(s session.Source) etcdlock.Locker { return etcdlock.NewSemaphore(s, "a", 1, etcdlock.WithSlots()) },
		"several": func(s session.Source) etcdlock.Locker {
			return etcdlock.NewMulti(s, etcdlock.NewMutex(s, "a"), etcdlock.NewMutex(s, "b"))
		},
		"reentrant": func(s session.Source) etcdlock.Locker {
			return outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "a"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, client := newCluster(t)
			keeper := keep(t, cluster.Client(t))
			l := kind(keeper)
			unlock(t, lock(t, l))
			h := lock(t, l)
			inMemory := name == "hand-over" || name == "retention"
			waiting := locking(within(t), l)
			if !inMemory {
				require.Eventually(t, func() bool { return waits(t, client, "a") }, patience, waitABit)
			}
			requireWaiting(t, waiting)
			drained := draining(t, keeper)
			_, err := kind(keeper).Lock(within(t))
			require.ErrorIs(t, err, session.ErrClosed)
			requireWaiting(t, drained)
			require.NoError(t, h.Err())
			unlock(t, h)
			if r := await(t, "what waits", waiting); inMemory {
				require.ErrorIs(t, r.err, session.ErrClosed, "its own ticket would be new")
			} else {
				require.NoError(t, r.err)
				requireWaiting(t, drained)
				unlock(t, r.hold)
			}
			require.NoError(t, await(t, "Drain", drained))
			leases, err := client.Leases(within(t))
			require.NoError(t, err)
			require.Empty(t, leases.Leases)
		})
	}
}

// waits reports whether a ticket stands behind another.
func waits(t *testing.T, c *clientv3.Client, name string) bool {
	t.Helper()
	q, err := etcdlock.Inspect(within(t), c, name)
	require.NoError(t, err)
	return len(q.Places) > q.Holding
}

func TestDrainGivesUpALockThatIsKept(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	m := etcdlock.NewMutex(keeper, "a", kept)
	unlock(t, lock(t, m))
	require.Equal(t, 1, tickets(t, client))
	require.NoError(t, keeper.Drain(within(t)))
	require.Zero(t, tickets(t, client))
}

func TestALockWithAMinimumTimeOutlastsDrain(t *testing.T) {
	cluster, client := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	unlock(t, lock(t, etcdlock.NewMutex(keeper, "a", etcdlock.WithMinHold(aLongTime))))
	require.NoError(t, keeper.Drain(within(t)))
	requireBusy(t, etcdlock.NewMutex(newSession(t, client), "a"))
}

func TestDrainWaitsForTheEndOfATerm(t *testing.T) {
	cluster, _ := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	e := etcdlock.NewElection(keeper, "a")
	leads, resign := make(chan struct{}), make(chan struct{})
	run := background(func() error {
		return e.Run(within(t), "me", func(ctx context.Context, _ *etcdlock.Term) error {
			close(leads)
			select {
			case <-resign:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
	})
	await(t, "the term", leads)
	drained := draining(t, keeper)
	requireWaiting(t, drained)
	close(resign)
	require.NoError(t, await(t, "Drain", drained))
	_ = await(t, "Run", run)
}
