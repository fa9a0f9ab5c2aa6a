package etcdlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// commit is a write that only the holder may make.
func commit(ctx context.Context, h *etcdlock.Hold) error {
	_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "1")).Commit()
	return err
}

func TestARefusedTransactionTellsWhetherTheLeaseIsGoneOrTheKeyAlone(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	m := etcdlock.NewMutex(s, "orders")

	h := lock(t, m)
	require.NoError(t, etcdlock.ForceRelease(within(t), client, h.Key(), h.Token()))
	err := commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s was removed", h.Key()))

	h = lock(t, m)
	revoke(t, client, s)
	err = commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s is gone with its lease %x", h.Key(), s.Lease()))
}

// clockOf returns a clock for a session, and what sets it forward, as if the machine had slept.
func clockOf() (now func() time.Duration, jump func(time.Duration)) {
	start := time.Now()
	var slept atomic.Int64
	return func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) },
		func(d time.Duration) { slept.Add(int64(d)) }
}

// Promise: Unlock after loss tells of it, even if nothing but the clock knows.
func TestUnlockTellsOfALossThatOnlyTheClockKnows(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]etcdlock.Option{
		"hand-over": etcdlock.WithLocalHandover(noBound, 10), "retention": etcdlock.WithRetention(noBound), "plain": etcdlock.WithLabel(""),
	} {
		t.Run(name, func(t *testing.T) {
			_, client := newCluster(t)
			now, jump := clockOf()
			m := etcdlock.NewMutex(newSession(t, client, session.WithClock(now)), "orders", opt)
			h := lock(t, m)
			jump(noBound)
			require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
		})
	}
}

func TestTheContextOfAHoldIsOverAtTheFirstLookIfTheHoldIs(t *testing.T) {
	_, client := newCluster(t)
	now, jump := clockOf()
	asleep, closed := newSession(t, client, session.WithClock(now)), newSession(t, client)
	one, two := lock(t, etcdlock.NewMutex(asleep, "a")), lock(t, etcdlock.NewMutex(closed, "b"))
	jump(noBound)
	require.ErrorIs(t, context.Cause(one.Context()), etcdlock.ErrLost)
	require.NoError(t, closed.Close(within(t)))
	require.ErrorIs(t, context.Cause(two.Context()), etcdlock.ErrClosed)
}

// asking is a log whose reader asks back when something is lost.
type asking struct {
	slog.Handler
	ask func()
}

func (a asking) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelError }
func (a asking) Handle(context.Context, slog.Record) error        { a.ask(); return nil }
func (a asking) WithAttrs([]slog.Attr) slog.Handler               { return a }

// Only the clock knows of the loss, so it is the call that finds it out, in the midst of what it does.
func TestTheSessionsLogMayAskAHold(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*etcdlock.Mutex, *etcdlock.Hold){
		"context": func(_ *etcdlock.Mutex, h *etcdlock.Hold) { h.Context() },
		"unlock":  func(_ *etcdlock.Mutex, h *etcdlock.Hold) { _ = h.Unlock(context.Background()) },
		"lock":    func(m *etcdlock.Mutex, _ *etcdlock.Hold) { _, _ = m.Lock(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			_, client := newCluster(t)
			now, jump := clockOf()
			var h *etcdlock.Hold
			asked := 0
			log := slog.New(asking{slog.DiscardHandler, func() {
				asked++
				_, _ = h.Key(), h.Err()
			}})
			s := newSession(t, client, session.WithClock(now), session.WithLogger(log))
			opt := etcdlock.WithLocalHandover(noBound, 10)
			if name == "lock" {
				opt = etcdlock.WithRetention(noBound)
			}
			m := etcdlock.NewMutex(s, "orders", opt)
			h = lock(t, m)
			if name == "lock" { // one that is kept
				unlock(t, h)
			}
			jump(noBound)
			await(t, "the call", background(func() error { look(m, h); return nil }))
			require.Equal(t, 1, asked)
		})
	}
}
