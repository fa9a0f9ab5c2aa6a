package versions

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/etcdlock/locks/etcdlock"
)

var errTogether = errors.New("two held at a time, or a token did not rise")

func TestAFreeLockIsTakenAndGivenBack(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		m := etcdlock.NewMutex(newSession(t, e), name(t))
		first := lock(t, m)
		unlock(t, first)
		require.ErrorIs(t, first.Err(), etcdlock.ErrUnlocked)
		second, err := m.TryLock(within(t))
		require.NoError(t, err)
		require.Greater(t, second.Token(), first.Token())
		unlock(t, second)
		require.Zero(t, count(t, e.client(t), inNamespace(name(t))))
	})
}

func TestManySessionsNeverHoldALockTogetherAndTokensRise(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		const sessions, turns = 6, 20
		var holding atomic.Int32
		var last atomic.Int64
		ctx := within(t)
		var group errgroup.Group
		for range sessions {
			m := etcdlock.NewMutex(newSession(t, e), name(t))
			group.Go(func() error {
				for range turns {
					err := etcdlock.Do(ctx, m, func(_ context.Context, h *etcdlock.Hold) error {
						alone := holding.Add(1) == 1
						later := int64(h.Token()) > last.Swap(int64(h.Token()))
						holding.Add(-1)
						if !alone || !later {
							return errTogether
						}
						return nil
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
	})
}

func TestWaitersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin := e.client(t)
		held := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
		var line []<-chan got[*etcdlock.Hold]
		for range 5 {
			m, ctx := etcdlock.NewMutex(newSession(t, e), name(t)), within(t)
			line = append(line, inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return m.Lock(ctx) }))
		}
		for i, waiter := range line {
			for _, later := range line[i:] {
				require.Empty(t, later)
			}
			unlock(t, held)
			held = taken(t, "the next in line", waiter)
		}
		unlock(t, held)
	})
}

func TestATryOfABusyLockWritesNothing(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		held := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
		s, admin := newSession(t, e), e.client(t)
		// Tests that run beside this one write as well, so only one quiet moment is asked
		// for. If tries wrote, there would be none.
		eventually(t, "a try that leaves no trace", func() bool {
			revision, raft := e.position(t, admin)
			_, err := etcdlock.NewMutex(s, name(t)).TryLock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrBusy)
			laterRevision, laterRaft := e.position(t, admin)
			return laterRevision == revision && laterRaft == raft
		})
		require.EqualValues(t, 1, count(t, admin, inNamespace(name(t))))
		unlock(t, held)
	})
}

func TestAnInspectionShowsOwnersAndLeases(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin := e.client(t)
		holder, waiter := newSession(t, e), newSession(t, e)
		held := lock(t, etcdlock.NewMutex(holder, name(t), etcdlock.WithLabel("holder")))
		m, ctx := etcdlock.NewMutex(waiter, name(t), etcdlock.WithLabel("waiter")), within(t)
		waiting := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return m.Lock(ctx) })

		q, err := etcdlock.Inspect(within(t), admin, name(t))
		require.NoError(t, err)
		require.Len(t, q.Places, 2)
		require.Equal(t, 1, q.Holding)
		require.Equal(t, "holder", q.Places[0].Owner.Label)
		require.Equal(t, holder.Lease(), q.Places[0].Lease)
		require.Equal(t, "waiter", q.Places[1].Owner.Label)
		require.Equal(t, waiter.Lease(), q.Places[1].Lease)
		require.Positive(t, q.Places[1].TTL)

		require.NoError(t, etcdlock.ForceRelease(within(t), admin, held.Key(), held.Token()))
		unlock(t, taken(t, "the waiter", waiting))
	})
}
