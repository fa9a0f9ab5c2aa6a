package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// What was locked, kept or waited for after the snapshot is gone, and the session is told of that by a renewal, as
// within TTL/3, or by whatever it asks first.
func TestHoldersAndWaitersAreToldThatEtcdWentBack(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(t *testing.T, s *session.Session, kept *etcdlock.Mutex){
		"by a renewal": func(t *testing.T, s *session.Session, _ *etcdlock.Mutex) { _ = s.Renew(within(t)) },
		"by another call": func(t *testing.T, s *session.Session, _ *etcdlock.Mutex) {
			_, err := etcdlock.NewMutex(s, "free").TryLock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrLost)
		},
		"by a lock that was kept": func(t *testing.T, _ *session.Session, kept *etcdlock.Mutex) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := kept.Lock(ctx)
			require.Error(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, client := newCluster(t)
			keeper := keep(t, cluster.Client(t))
			s := current(t, keeper)
			retained := etcdlock.NewMutex(s, "kept", etcdlock.WithRetention(time.Hour))
			holds := []*etcdlock.Hold{lock(t, etcdlock.NewMutex(s, "before"))}
			lock(t, etcdlock.NewMutex(newSession(t, client), "taken"))
			snapshot, err := cluster.Snapshot(within(t))
			require.NoError(t, err)
			holds = append(holds, lock(t, etcdlock.NewMutex(keeper, "orders")))
			unlock(t, lock(t, retained))
			watches := cluster.Calls("Watch")
			waiting := locking(t.Context(), etcdlock.NewMutex(s, "taken"))
			awaitWatch(t, cluster, watches)
			for range 20 { // more than what is written before anybody looks
				putKey(t, client, "elsewhere", "")
			}
			require.NoError(t, s.Renew(within(t)))
			require.NoError(t, cluster.Restore(within(t), snapshot))
			next := []*etcdlock.Hold{lock(t, newMutex(t, cluster)), lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "kept"))}

			see(t, s, retained)
			_ = s.Renew(within(t)) // in case the kept lock was not asked for in time
			for _, h := range holds {
				await(t, "the end of the hold", h.Done())
				require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
				require.ErrorContains(t, h.Err(), "etcd went back from revision ")
				require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
			}
			r := await(t, "the end of the wait", waiting)
			require.ErrorIs(t, r.err, etcdlock.ErrLost)
			require.ErrorContains(t, r.err, "etcd went back from revision ")
			for _, h := range next {
				require.NoError(t, h.Err())
				unlock(t, h)
			}
			unlock(t, lock(t, etcdlock.NewMutex(keeper, "orders"))) // the keeper has another session
		})
	}
}
