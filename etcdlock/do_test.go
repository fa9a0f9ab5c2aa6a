package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var errWork = errors.New("work failed")

func TestDoReleasesWhateverBecomesOfTheWork(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	for name, outcome := range map[string]func(context.Context, *etcdlock.Hold) error{
		"nothing": nothing,
		"error":   func(context.Context, *etcdlock.Hold) error { return errWork },
		"panic":   func(context.Context, *etcdlock.Hold) error { panic("work panicked") },
		"release": func(ctx context.Context, h *etcdlock.Hold) error { return h.Unlock(ctx) }, // which goes on without ctx
	} {
		var seen *etcdlock.Hold
		do := func() error {
			return etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
				require.NoError(t, ctx.Err())
				require.NoError(t, h.Err())
				require.NoError(t, etcdlock.RequireHeld(ctx, "orders"))
				seen = h
				return outcome(ctx, h)
			})
		}
		switch name {
		case "error":
			require.ErrorIs(t, do(), errWork)
		case "panic":
			require.PanicsWithValue(t, "work panicked", func() { _ = do() })
		default:
			require.NoError(t, do())
		}
		require.ErrorIs(t, seen.Err(), etcdlock.ErrUnlocked, name)
		require.Zero(t, tickets(t, client), name)
	}
}

func TestDoAndTryDoDoNothingWithoutTheLock(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	never := func(context.Context, *etcdlock.Hold) error {
		t.Error("called without the lock")
		return nil
	}
	held := lock(t, m)
	require.ErrorIs(t, etcdlock.TryDo(within(t), m, never), etcdlock.ErrBusy)
	unlock(t, held)
	require.ErrorIs(t, etcdlock.Do(cancelled(), m, never), context.Canceled)
	require.ErrorIs(t, etcdlock.TryDo(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
		require.NoError(t, h.Err())
		return errWork
	}), errWork)
	require.Zero(t, tickets(t, client))
}

func TestTheContextOfTheWorkEndsWithTheCallers(t *testing.T) {
	cluster, client := newCluster(t)
	ctx, cancel := context.WithCancelCause(within(t))
	err := etcdlock.Do(ctx, newMutex(t, cluster), func(ctx context.Context, h *etcdlock.Hold) error {
		cancel(errWork)
		await(t, "the context", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), errWork)
		require.NoError(t, h.Err(), "the lock is held until the work is done")
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, etcdlock.ErrLost)
	require.Zero(t, tickets(t, client), "released although the context was over")
}

// What happens to the session while the lock is being released is not the work's loss.
func TestALossDuringTheReleaseIsNoErrorOfDo(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	silence := cluster.LoseRequest("Txn", embedtest.When(func(message any) bool { return !creates(message) }))
	defer silence.Heal()
	go func() {
		if silence.Wait(context.Background()) == nil { // the release is under way
			_, _ = client.Revoke(context.Background(), s.Lease())
			_ = s.Renew(context.Background())
		}
	}()
	require.NoError(t, etcdlock.Do(within(t), etcdlock.NewMutex(s, "orders"), func(_ context.Context, h *etcdlock.Hold) error {
		return h.Err()
	}))
	require.ErrorIs(t, s.Err(), etcdlock.ErrLost)
}

// Do reports a loss once, whichever call finds it out, although the work returned no error.
func TestDoTellsALossOnceHoweverItIsFoundOut(t *testing.T) {
	t.Parallel()
	type losing struct {
		cluster *embedtest.Cluster
		client  *clientv3.Client
		session *session.Session
		jump    func(time.Duration) // of the session's clock
	}
	for what, work := range map[string]func(*testing.T, losing, context.Context, *etcdlock.Hold) error{
		"by the context of the work": func(t *testing.T, l losing, ctx context.Context, h *etcdlock.Hold) error {
			awaitWatch(t, l.cluster, 0)
			remove(t, l.client, h.Key())
			await(t, "the context", ctx.Done())
			require.ErrorIs(t, context.Cause(ctx), etcdlock.ErrLost)
			return nil
		},
		"by the session, and the work unlocks": func(t *testing.T, l losing, ctx context.Context, h *etcdlock.Hold) error {
			lose(t, l.client, l.session)
			await(t, "the loss", h.Done())
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return nil
		},
		// The machine has slept for too long, and no timer has told yet.
		"by the clock, and the work unlocks": func(t *testing.T, l losing, ctx context.Context, h *etcdlock.Hold) error {
			l.jump(longTTL)
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return nil
		},
		// It is the work's release that finds the key gone, and nothing did before.
		"by the work's Unlock": func(t *testing.T, l losing, ctx context.Context, h *etcdlock.Hold) error {
			remove(t, l.client, h.Key())
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return nil
		},
		"by the work's Unlock, which is its error": func(t *testing.T, l losing, ctx context.Context, h *etcdlock.Hold) error {
			remove(t, l.client, h.Key())
			return h.Unlock(ctx)
		},
		"by a transaction": func(t *testing.T, l losing, _ context.Context, h *etcdlock.Hold) error {
			remove(t, l.client, h.Key())
			return commit(within(t), h)
		},
		"by a transaction, and the work tells the hold's end": func(t *testing.T, l losing, _ context.Context, h *etcdlock.Hold) error {
			remove(t, l.client, h.Key())
			_ = commit(within(t), h)
			return h.Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			cluster, client := newCluster(t)
			now, jump := clockOf()
			s := newSession(t, cluster.Client(t), session.WithClock(now))
			m := etcdlock.NewMutex(s, "orders")
			for _, l := range []etcdlock.Locker{m, outermost{etcdlock.Reentrant(m)}} {
				if s.Err() != nil {
					break // it was the session that was lost
				}
				finished := false
				err := etcdlock.Do(within(t), l, func(ctx context.Context, h *etcdlock.Hold) error {
					defer func() { finished = true }()
					return work(t, losing{cluster, client, s, jump}, ctx, h)
				})
				require.True(t, finished, "Do waits for the work")
				require.ErrorIs(t, err, etcdlock.ErrLost)
				require.Equal(t, 1, strings.Count(err.Error(), etcdlock.ErrLost.Error()), err)
			}
		})
	}
}
