package fairqueue_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// leading is a candidate that owns.
type leading struct {
	c     *embedtest.Cluster
	queue *fairqueue.Queue
	*fairqueue.Ticket
}

func newLeading(t *testing.T) *leading {
	t.Helper()
	c := embedtest.Start(t)
	s := open(t, c.Client(t))
	return &leading{c, queueAt(s, "q"), joinCandidate(t, s, "old", 0)}
}

func (l *leading) value(t *testing.T) string {
	return string(entriesOf(t, l.queue)[0].Value)
}

// late is a Set that is given up while its request is under way. It comes when that is called.
func (l *leading) late(t *testing.T, value string) (come func()) {
	t.Helper()
	held := l.c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	givesUp(t, held, func(ctx context.Context) error { return l.Set(ctx, value) })
	return func() { arrive(t, l.c, held) }
}

func TestALateSetDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	arrive := l.late(t, "late")
	require.NoError(t, l.Set(within(t, patience), "new"))
	arrive()
	require.Equal(t, "new", l.value(t))
	require.NoError(t, l.Set(within(t, patience), "newer"))
	require.Equal(t, "newer", l.value(t))
}

func TestASetReplacesWhatWasPutMeanwhile(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, l *leading){
		"an earlier Set, late": func(t *testing.T, l *leading) { l.late(t, "theirs")() },
		"somebody else's, without a lease": func(t *testing.T, l *leading) {
			set(t, l.Session().Client(), l.Key(), "theirs")
		},
	} {
		for _, value := range []string{"new", "old", "theirs"} {
			l := newLeading(t)
			put(t, l)
			require.Equal(t, "theirs", l.value(t))
			require.NoError(t, l.Set(within(t, patience), value), name)
			require.Equal(t, value, l.value(t), name)
			require.Equal(t, l.Session().Lease(), entriesOf(t, l.queue)[0].Lease)
		}
	}
}

func TestTheSameValueCanBeSetAgain(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	for _, value := range []string{"old", "new", "new", "old"} {
		before := l.c.AppliedIndex()
		require.NoError(t, l.Set(within(t, patience), value))
		require.Equal(t, before+1, l.c.AppliedIndex())
		require.Equal(t, value, l.value(t))
	}
}

func TestSetsAtATimeTakeTurns(t *testing.T) {
	t.Parallel()
	const setters = 20
	l := newLeading(t)
	before := l.c.AppliedIndex()
	var set []<-chan error
	for i := range setters {
		set = append(set, background(t, func() error { return l.Set(within(t, patience), strconv.Itoa(i)) }))
	}
	for i := range set {
		require.NoError(t, result(t, set[i]))
	}
	require.Equal(t, before+setters, l.c.AppliedIndex(), "none had to be repeated")
	require.NotEqual(t, "old", l.value(t))
}

func TestASetDoesNotWaitForItsTurnForLongerThanItsContext(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	held := l.c.Hold("Txn", embedtest.When(creating))
	first := during(t, held, func() error { return l.Set(within(t, patience), "first") }, func() {
		require.ErrorIs(t, l.Set(within(t, brief), "second"), context.DeadlineExceeded)
	})
	require.NoError(t, first)
	require.Equal(t, "first", l.value(t))
	require.NoError(t, l.Set(within(t, patience), "third"))
	require.Equal(t, "third", l.value(t))
}

// The one is under way when the other happens.
func TestASetDoesNotUndoALaterRelease(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	held := l.c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	set := func() error { return l.Set(within(t, patience), "new") }
	require.ErrorIs(t, during(t, held, set, func() {
		require.NoError(t, l.ReleaseAfter(within(t, patience), never))
	}), fairqueue.ErrGone)
	require.ErrorIs(t, set(), fairqueue.ErrGone)
	require.NotEqual(t, l.Session().Lease(), entriesOf(t, l.queue)[0].Lease)
}
