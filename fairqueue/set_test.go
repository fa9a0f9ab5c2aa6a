package fairqueue_test

import (
	"context"
	"slices"
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
	c := embedtest.Start(t)
	s := open(t, c.Client(t))
	return &leading{c, queueAt(s, "q"), joinCandidate(t, s, "old", 0)}
}

func (l *leading) value(t *testing.T) string {
	return string(entriesOf(t, l.queue)[0].Value)
}

// late is a Set that is given up while its request is under way. It arrives when that is called.
func (l *leading) late(t *testing.T, value string) (arrive func()) {
	t.Helper()
	held := l.c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	ctx, cancel := context.WithCancel(within(t, patience))
	set := background(t, func() error { return l.Set(ctx, value) })
	require.NoError(t, held.Wait(within(t, patience)))
	cancel()
	require.ErrorIs(t, result(t, set), context.Canceled)
	return func() {
		before := l.c.AppliedIndex()
		held.Heal()
		eventually(t, "it has come", func() bool { return l.c.AppliedIndex() > before })
	}
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

func TestASetReplacesWhatCameLate(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"new", "old", "late"} {
		l := newLeading(t)
		l.late(t, "late")()
		require.Equal(t, "late", l.value(t))
		require.NoError(t, l.Set(within(t, patience), value))
		require.Equal(t, value, l.value(t))
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
	var values []string
	var set []<-chan error
	for i := range setters {
		value := strconv.Itoa(i)
		values = append(values, value)
		set = append(set, background(t, func() error { return l.Set(within(t, patience), value) }))
	}
	for i := range set {
		require.NoError(t, result(t, set[i]))
	}
	require.Equal(t, before+setters, l.c.AppliedIndex(), "none had to be repeated")
	require.True(t, slices.Contains(values, l.value(t)))
}

func TestASetDoesNotWaitForItsTurnForLongerThanItsContext(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	held := l.c.Hold("Txn", embedtest.When(creating))
	first := background(t, func() error { return l.Set(within(t, patience), "first") })
	require.NoError(t, held.Wait(within(t, patience)))
	ctx, cancel := context.WithCancel(t.Context())
	second := background(t, func() error { return l.Set(ctx, "second") })
	cancel()
	require.ErrorIs(t, result(t, second), context.Canceled)
	held.Heal()
	require.NoError(t, result(t, first))
	require.Equal(t, "first", l.value(t))
	require.NoError(t, l.Set(within(t, patience), "third"))
	require.Equal(t, "third", l.value(t))
}

// As a person does by hand, without a lease.
func TestASetTakesAValueBackThatSomebodyElseHasPut(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"theirs", "ours"} {
		l := newLeading(t)
		_, err := l.c.Client(t).Put(within(t, patience), l.Key(), "theirs")
		require.NoError(t, err)
		require.NoError(t, l.Set(within(t, patience), value))
		require.Equal(t, value, l.value(t))
		require.Equal(t, l.Session().Lease(), entriesOf(t, l.queue)[0].Lease)
	}
}

// The one is under way when the other happens.
func TestASetDoesNotUndoALaterRelease(t *testing.T) {
	t.Parallel()
	l := newLeading(t)
	held := l.c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	set := background(t, func() error { return l.Set(within(t, patience), "new") })
	require.NoError(t, held.Wait(within(t, patience)))
	require.NoError(t, l.ReleaseAfter(within(t, patience), never))
	held.Heal()
	require.ErrorIs(t, result(t, set), fairqueue.ErrGone)
	require.NotEqual(t, l.Session().Lease(), entriesOf(t, l.queue)[0].Lease)
	require.ErrorIs(t, l.Set(within(t, patience), "new"), fairqueue.ErrGone)
	require.NotEqual(t, l.Session().Lease(), entriesOf(t, l.queue)[0].Lease)
}
