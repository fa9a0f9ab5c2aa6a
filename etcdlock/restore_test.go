package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// goBack has the cluster forget what f does, and what s has heard of besides.
func goBack(t *testing.T, cluster *embedtest.Cluster, s *session.Session, f func()) {
	t.Helper()
	snapshot, err := cluster.Snapshot(within(t))
	require.NoError(t, err)
	f()
	client := cluster.Client(t)
	for range 20 { // more than what is written before anybody looks
		_, err := client.Put(within(t), "elsewhere", "")
		require.NoError(t, err)
	}
	require.NoError(t, s.Renew(within(t)))
	require.NoError(t, cluster.Restore(within(t), snapshot))
}

// renewed makes s hear of its cluster now, as it does within TTL/3.
func renewed(t *testing.T, s *session.Session) {
	t.Helper()
	_ = s.Renew(within(t))
	await(t, "the loss", s.Done())
}

func TestAHoldIsLostWhenEtcdGoesBack(t *testing.T) {
	cluster, _ := newCluster(t)
	keeper := keep(t, cluster.Client(t))
	s := current(t, keeper)
	m := etcdlock.NewMutex(keeper, "orders")
	before := lock(t, etcdlock.NewMutex(s, "before"))
	var h *etcdlock.Hold
	goBack(t, cluster, s, func() { h = lock(t, m) })
	other := lock(t, newMutex(t, cluster))
	renewed(t, s)
	for _, h := range []*etcdlock.Hold{h, before} {
		await(t, "the end of the hold", h.Done())
		require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
		require.ErrorContains(t, h.Err(), "etcd went back from revision ")
	}
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, other.Err())
	unlock(t, other)
	unlock(t, lock(t, m)) // the keeper has another session
}

func TestAWaiterIsToldThatEtcdWentBack(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(t *testing.T, s *session.Session){
		"by a renewal": renewed,
		"by another call": func(t *testing.T, s *session.Session) {
			_, err := etcdlock.NewMutex(s, "free").TryLock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := newCluster(t)
			holder := newSession(t, cluster.Client(t))
			s := newSession(t, cluster.Client(t))
			lock(t, etcdlock.NewMutex(holder, "orders"))
			var waiting <-chan result
			goBack(t, cluster, s, func() {
				before := cluster.Calls("Watch")
				waiting = locking(t.Context(), etcdlock.NewMutex(s, "orders"))
				awaitWatch(t, cluster, before)
			})
			see(t, s)
			r := await(t, "the end of the wait", waiting)
			require.ErrorIs(t, r.err, etcdlock.ErrLost)
			require.ErrorContains(t, r.err, "etcd went back from revision ")
		})
	}
}

func TestAKeptLockIsNotHandedOutAfterEtcdWentBack(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	m := etcdlock.NewMutex(s, "orders", etcdlock.WithRetention(time.Hour))
	goBack(t, cluster, s, func() { unlock(t, lock(t, m)) }) // and keeps it
	other := lock(t, newMutex(t, cluster))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	h, err := m.Lock(ctx)
	require.Nil(t, h)
	require.Error(t, err)
	require.NoError(t, other.Err())
}
