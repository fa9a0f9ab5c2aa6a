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

func newLine(t *testing.T) *line {
	t.Helper()
	c := embedtest.Start(t)
	return &line{
		cluster: c, client: c.Client(t),
		mine:   etcdlock.NewRWMutex(newSession(t, c.Client(t)), "orders"),
		theirs: etcdlock.NewRWMutex(newSession(t, c.Client(t)), "orders"),
	}
}

// wait puts one in line behind n others.
func (q *line) wait(t *testing.T, l etcdlock.Locker, n int) <-chan result {
	t.Helper()
	awaitTickets(t, q.client, n)
	waiting := locking(within(t), l)
	awaitTickets(t, q.client, n+1)
	return waiting
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	one, two := lock(t, q.mine.RLocker()), lock(t, q.theirs.RLocker())
	three, err := q.mine.TryRLock(within(t))
	require.NoError(t, err)
	require.True(t, one.Shared())
	for _, m := range []*etcdlock.RWMutex{q.mine, q.theirs} {
		requireBusy(t, m)
	}
	unlockAll(t, one, two)
	requireBusy(t, q.mine, "one reader is enough")
	unlock(t, three)

	writer := tryLock(t, q.mine)
	require.False(t, writer.Shared())
	_, err = q.theirs.TryRLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	requireBusy(t, q.theirs)
	unlock(t, writer)
	require.Zero(t, tickets(t, q.client))
}

// Scenario M3: readers keep coming, each before the one before it has left.
func TestAWriterBehindAStreamOfReadersIsServedInItsTurn(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	reader := lock(t, q.mine.RLocker())
	writer := q.wait(t, q.theirs, 1)
	var late []<-chan result
	for i := range 4 {
		late = append(late, q.wait(t, q.mine.RLocker(), 2+i))
		_, err := q.mine.TryRLock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrBusy, "a writer waits")
	}
	requireWaiting(t, writer)
	unlock(t, reader)
	w := granted(t, writer)
	for _, r := range late {
		requireWaiting(t, r)
	}
	unlock(t, w)
	var holds []*etcdlock.Hold
	for _, r := range late { // together
		holds = append(holds, granted(t, r))
	}
	unlockAll(t, holds...)
}

func TestReadersAndWritersAreServedInOrder(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	current := []*etcdlock.Hold{lock(t, q.mine)}
	// Each run of readers is one turn.
	turns := [][]etcdlock.Locker{
		{q.mine.RLocker(), q.theirs.RLocker()}, {q.theirs}, {q.mine}, {q.mine.RLocker()}, {q.theirs},
		{q.theirs.RLocker(), q.theirs.RLocker(), q.mine.RLocker()},
	}
	var waiting [][]<-chan result
	n := 1
	for _, turn := range turns {
		var together []<-chan result
		for _, l := range turn {
			together = append(together, q.wait(t, l, n))
			n++
		}
		waiting = append(waiting, together)
	}
	var last etcdlock.Token
	for i, turn := range waiting {
		unlockAll(t, current...)
		current = nil
		for _, w := range turn {
			h := granted(t, w)
			require.Greater(t, h.Token(), last)
			last = h.Token()
			current = append(current, h)
		}
		for _, later := range waiting[i+1:] {
			for _, w := range later {
				requireWaiting(t, w)
			}
		}
	}
	unlockAll(t, current...)
	require.Zero(t, tickets(t, q.client))
}

// The last of several readers lets the writer in, whichever it is.
func TestAWriterWaitsForEveryReader(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		q := newLine(t)
		var readers []*etcdlock.Hold
		for range 3 {
			readers = append(readers, lock(t, q.mine.RLocker()))
		}
		writer := q.wait(t, q.theirs, 3)
		for _, i := range order {
			requireWaiting(t, writer)
			unlock(t, readers[i])
		}
		unlock(t, granted(t, writer))
	}
}

func TestAMutexOfTheNameIsTheExclusiveSide(t *testing.T) {
	t.Parallel()
	q := newLine(t)
	m := etcdlock.NewMutex(newSession(t, q.cluster.Client(t)), "orders")
	h := lock(t, m)
	_, err := q.mine.TryRLock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	reader := q.wait(t, q.mine.RLocker(), 1)
	again := q.wait(t, m, 2)
	unlock(t, h)
	r := granted(t, reader)
	requireBusy(t, m)
	requireWaiting(t, again)
	unlock(t, r)
	unlock(t, granted(t, again))
}

func TestAReaderElsewhereMayWriteHere(t *testing.T) {
	t.Parallel()
	for what, clients := range elsewhere(t) {
		reader := lock(t, etcdlock.NewRWMutex(newSession(t, clients[0]), "orders").RLocker())
		s := newSession(t, clients[1])
		m := etcdlock.NewRWMutex(s, "orders")
		for _, l := range []etcdlock.Locker{m, etcdlock.NewMulti(s, m, etcdlock.NewMutex(s, "other"))} {
			h, err := l.Lock(reader.Context())
			require.NoError(t, err, what)
			unlock(t, h)
			h, err = l.TryLock(reader.Context())
			require.NoError(t, err, what)
			unlock(t, h)
		}
		unlock(t, reader)
	}
}

func TestAReaderCannotBecomeAWriter(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	mine, theirs := etcdlock.NewRWMutex(s, "orders"), etcdlock.NewRWMutex(s, "orders")
	downgraded := lock(t, mine)
	require.NoError(t, downgraded.Downgrade(within(t)))
	readers := map[string]*etcdlock.Hold{
		"reader":           lock(t, mine.RLocker()),
		"downgraded":       downgraded,
		"part of a set":    lock(t, etcdlock.NewMulti(s, etcdlock.NewMutex(s, "other"), theirs.RLocker())),
		"a set of its own": lock(t, etcdlock.NewMulti(s, theirs.RLocker())),
	}
	before := cluster.AppliedIndex()
	refuse := func(what string, ctx context.Context) {
		for _, m := range []etcdlock.Locker{mine, theirs, etcdlock.NewMulti(s, mine)} {
			_, err := m.Lock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrUpgrade, what)
			_, err = m.TryLock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrUpgrade, what)
		}
	}
	for what, h := range readers {
		ctx, cancel := context.WithTimeout(h.Context(), patience)
		refuse(what, ctx)
		cancel()
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
	writer, err := mine.TryLock(context.WithoutCancel(readers["reader"].Context()))
	require.NoError(t, err, "it does not read any more")
	unlock(t, writer)
}
