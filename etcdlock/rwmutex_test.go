package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// line is the read-write lock "orders", seen from two sessions.
type line struct {
	cluster      *embedtest.Cluster
	client       *clientv3.Client
	mine, theirs *etcdlock.RWMutex
}

// newLine is for a test that runs beside others.
func newLine(t *testing.T) *line {
	t.Helper()
	c, client := newCluster(t)
	return &line{
		cluster: c, client: client,
		mine:   etcdlock.NewRWMutex(newSession(t, c.Client(t)), "orders"),
		theirs: etcdlock.NewRWMutex(newSession(t, c.Client(t)), "orders"),
	}
}

// It would wait for itself, and two of them for each other for ever.
func TestAReaderCannotBecomeAWriter(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, client)
	mine, mutex := etcdlock.NewRWMutex(s, "orders"), etcdlock.NewMutex(s, "orders")
	writers := []etcdlock.Locker{
		mine, etcdlock.NewRWMutex(s, "orders"), etcdlock.NewMulti(s, mine),
		outermost{etcdlock.Reentrant(mine)}, outermost{etcdlock.Reentrant(mutex)},
	}
	downgraded := lock(t, mutex)
	require.NoError(t, downgraded.Downgrade(within(t)))
	readers := map[string]*etcdlock.Hold{
		"reader":           lock(t, mine.RLocker()),
		"downgraded":       downgraded,
		"part of a set":    lock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "other"), mine.RLocker())),
		"a set of its own": lock(t, etcdlock.NewMulti(s, mine.RLocker())),
	}
	before := cluster.AppliedIndex()
	refuse := func(what string, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for _, w := range writers {
			for _, call := range bothCalls(w) {
				_, err := call(ctx)
				require.ErrorIs(t, err, etcdlock.ErrUpgrade, what)
			}
		}
	}
	for what, h := range readers {
		refuse(what, h.Context())
	}
	require.Equal(t, before, cluster.AppliedIndex())
	requireBusy(t, mine, "for others it is just taken")
	other, err := etcdlock.NewRWMutex(s, "unrelated").TryLock(readers["reader"].Context())
	require.NoError(t, err)
	unlock(t, other)

	require.NoError(t, etcdlock.Do(within(t), mine.RLocker(), func(ctx context.Context, h *etcdlock.Hold) error {
		refuse("Do", ctx)
		return h.Err()
	}))
	for _, h := range readers {
		unlock(t, h)
	}
	for _, w := range writers {
		h, err := w.TryLock(context.WithoutCancel(readers["reader"].Context()))
		require.NoError(t, err, "it does not read any more")
		unlock(t, h)
	}
}

// The hold of a Mutex of the name can be downgraded as well.
func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	q := newLine(t)
	for _, l := range []etcdlock.Locker{q.mine, etcdlock.NewMutex(newSession(t, q.cluster.Client(t)), "orders")} {
		h := lock(t, l)
		token, key := h.Token(), h.Key()
		reader, writer := queued(t, q.client, q.theirs.RLocker(), 1), queued(t, q.client, q.theirs, 2)
		before := q.cluster.AppliedIndex()
		require.NoError(t, h.Downgrade(within(t)))
		require.Equal(t, before+1, q.cluster.AppliedIndex(), "one raft entry, so there is no gap")
		require.NoError(t, h.Downgrade(within(t)), "the second does nothing")
		require.Equal(t, before+1, q.cluster.AppliedIndex())
		first := granted(t, reader)
		require.Equal(t, token, h.Token())
		require.Equal(t, key, h.Key())
		require.True(t, h.Shared())
		_, err := h.Txn(within(t)).Commit()
		require.NoError(t, err)
		unlock(t, first)
		requireWaiting(t, writer)
		unlock(t, h)
		unlock(t, granted(t, writer))
		require.Zero(t, tickets(t, q.client))
	}
}

func TestDowngradeAfterALossSaysSoAndCreatesNothing(t *testing.T) {
	q := newLine(t)
	h := lock(t, q.mine)
	remove(t, q.client, h.Key())
	require.NoError(t, h.Err(), "it has not noticed")
	for range 2 {
		require.ErrorIs(t, h.Downgrade(within(t)), etcdlock.ErrLost)
		require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
		require.False(t, h.Shared())
	}
	require.Zero(t, tickets(t, q.client))

	released := lock(t, q.mine)
	unlock(t, released)
	require.ErrorIs(t, released.Downgrade(within(t)), etcdlock.ErrUnlocked)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestOnlyTheHoldOfASingleWriterCanBeDowngraded(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, client)
	reader := lock(t, etcdlock.NewRWMutex(s, "reader").RLocker())
	require.NoError(t, reader.Downgrade(within(t)), "it is what it is to become")
	holds := []*etcdlock.Hold{
		lock(t, outermost{etcdlock.Reentrant(etcdlock.NewMutex(s, "reentrant"))}),
		lock(t, anyN(etcdlock.NewStriped(s, "stripes", 3), 2)),
		lock(t, etcdlock.NewMutex(s, "handed on", etcdlock.WithLocalHandover(aLongTime, 10))),
		lock(t, etcdlock.NewMutex(s, "kept", etcdlock.WithRetention(aLongTime))),
		lock(t, etcdlock.NewSemaphore(s, "permits", 1)),
		lock(t, etcdlock.NewSemaphore(s, "slots", 1, etcdlock.WithSlots())),
		lock(t, allOf(s, "a", "b")),
	}
	before := cluster.AppliedIndex()
	for _, h := range holds {
		require.False(t, h.Shared(), h.Name())
		require.ErrorContains(t, h.Downgrade(within(t)), "only the hold of a single Mutex or RWMutex", h.Name())
		require.NoError(t, h.Err())
		require.False(t, h.Shared(), h.Name())
	}
	require.Equal(t, before, cluster.AppliedIndex())
	unlockAll(t, append(holds, reader)...)
}
