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

	"github.com/etcdlock/locks/embedtest"
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
	force(t, client, h.Key(), h.Token())
	err := commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s was removed", h.Key()))

	h = lock(t, m)
	revoke(t, client, s)
	err = commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s is gone with its lease %x", h.Key(), s.Lease()))
}

// A transaction does not outlast the hold, whatever its context. That the hold is gone says nothing about a
// transaction that was sent while it was there.
func TestTxnReturnsWhenTheHoldEnds(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	silence := cluster.LoseRequest("Txn")
	defer silence.Heal()
	returned := background(func() error { return commit(context.Background(), h) })
	require.NoError(t, silence.Wait(within(t)))
	lose(t, client, s)
	err := await(t, "the transaction", returned)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
}

func TestTheOutcomeOfALostAnswerIsUnknownAndThatOfARefusalIsNot(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, newMutex(t, cluster))
	before := cluster.Calls("Txn")
	err := commit(cancelled(), h)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	require.Equal(t, before, cluster.Calls("Txn"), "it was not sent")

	fault := cluster.LoseReply("Txn", embedtest.Once())
	ctx, cancel := context.WithCancel(within(t))
	committed := background(func() error { return commit(ctx, h) })
	require.NoError(t, fault.Wait(within(t)))
	cancel()
	err = await(t, "the transaction", committed)
	require.ErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	remove(t, client, "orders/last") // it did take effect

	remove(t, client, h.Key())
	for range 2 { // the guard is refused, then the loss is known
		err = commit(within(t), h)
		require.ErrorIs(t, err, etcdlock.ErrLost)
		require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	}
	require.Empty(t, keysAt(t, client, "orders/"))
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

// For a store outside etcd.
func TestAFenceRefusesTokensBelowTheHighest(t *testing.T) {
	var fence etcdlock.Fence
	require.ErrorIs(t, fence.Admit(0), etcdlock.ErrStale, "that is no token")
	require.NoError(t, fence.Admit(7), "nobody else has been here")
	require.NoError(t, fence.Admit(9))
	require.ErrorIs(t, fence.Admit(7), etcdlock.ErrStale)
	require.NoError(t, fence.Admit(9), "a holder may write as often as it likes")
}

// clockOf returns a clock for a session, and what sets it forward, as if the machine had slept.
func clockOf() (now func() time.Duration, jump func(time.Duration)) {
	start := time.Now()
	var slept atomic.Int64
	return func() time.Duration { return time.Since(start) + time.Duration(slept.Load()) },
		func(d time.Duration) { slept.Add(int64(d)) }
}

// The machine has slept, and no timer has told yet. Each look is the first at its session.
func TestTheFirstLookTellsOfALossThatOnlyTheClockKnows(t *testing.T) {
	_, client := newCluster(t)
	for what, look := range map[string]func(*etcdlock.Hold) error{
		"Err":     func(h *etcdlock.Hold) error { return h.Err() },
		"Context": func(h *etcdlock.Hold) error { return context.Cause(h.Context()) },
		"Ensure":  func(h *etcdlock.Hold) error { return h.Ensure(within(t), 0) },
		"Txn":     func(h *etcdlock.Hold) error { return commit(within(t), h) },
		"Unlock":  func(h *etcdlock.Hold) error { return h.Unlock(within(t)) },
	} {
		for _, opt := range []etcdlock.Option{etcdlock.WithLabel("plain"), handedOn, kept} {
			now, jump := clockOf()
			h := lock(t, etcdlock.NewMutex(newSession(t, client, session.WithClock(now)), what, opt))
			jump(noBound)
			require.ErrorIs(t, look(h), etcdlock.ErrLost, what)
			force(t, client, h.Key(), h.Token()) // as etcd will
		}
	}
	s := newSession(t, client)
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	require.NoError(t, s.Close(within(t)))
	require.ErrorIs(t, context.Cause(h.Context()), etcdlock.ErrClosed)
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
	for name, c := range map[string]struct {
		look   func(*etcdlock.Mutex, *etcdlock.Hold)
		option etcdlock.Option
	}{
		"context": {func(_ *etcdlock.Mutex, h *etcdlock.Hold) { h.Context() }, handedOn},
		"unlock":  {func(_ *etcdlock.Mutex, h *etcdlock.Hold) { _ = h.Unlock(context.Background()) }, handedOn},
		"lock":    {func(m *etcdlock.Mutex, _ *etcdlock.Hold) { _, _ = m.Lock(context.Background()) }, kept},
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
			m := etcdlock.NewMutex(newSession(t, client, session.WithClock(now), session.WithLogger(log)), "orders", c.option)
			h = lock(t, m)
			if name == "lock" { // one that is kept
				unlock(t, h)
			}
			jump(noBound)
			require.NoError(t, await(t, "the call", background(func() error { c.look(m, h); return nil })))
			require.Equal(t, 1, asked)
		})
	}
}
