package etcdlock_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// anyOf is a Locker for n stripes of a Striped, whichever.
type anyOf struct {
	*etcdlock.Striped

	n       int
	numbers *[]int
}

func (a anyOf) Lock(ctx context.Context) (h *etcdlock.Hold, err error) {
	h, *a.numbers, err = a.AnyN(ctx, a.n)
	return h, err
}

func (a anyOf) TryLock(ctx context.Context) (h *etcdlock.Hold, err error) {
	h, *a.numbers, err = a.TryAnyN(ctx, a.n)
	return h, err
}

func anyN(s *etcdlock.Striped, n int) anyOf { return anyOf{s, n, new([]int)} }

// It is 64-bit FNV-1a modulo n. With another function, two processes of different versions would
// lock different stripes for the same key.
func TestTheStripeOfAKeyIsTheSameForEver(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	for key, want := range map[string][4]int{ // of 7, 8, 16, 1000
		"": {2, 5, 5, 37}, "a": {5, 4, 12, 996}, "b": {0, 5, 5, 629}, "ü": {5, 2, 10, 874},
		"apple": {1, 7, 15, 135}, "pear": {0, 5, 13, 733}, "order-4711": {3, 5, 13, 789},
	} {
		for i, n := range []int{7, 8, 16, 1000} {
			striped := etcdlock.NewStriped(s, "stock", n)
			require.Equal(t, want[i], striped.Index(key), "%q of %d", key, n)
			require.Same(t, striped.Stripe(want[i]), striped.For(key))
			require.Equal(t, n, striped.Stripes())
		}
	}
	one := etcdlock.NewStriped(s, "stock", 1)
	require.Zero(t, one.Index("whatever"))
	require.Equal(t, "stock/0", one.For("whatever").Name())
}

func TestAllWaysToAStripeExcludeEachOther(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, client)
	mine, theirs := etcdlock.NewStriped(newSession(t, cluster.Client(t)), "stock", 3), etcdlock.NewStriped(s, "stock", 3)
	apple := lock(t, mine.For("apple")) // 64-bit FNV-1a of it modulo 3
	taken := mine.Index("apple")
	requireBusy(t, theirs.For("apple"))
	requireBusy(t, etcdlock.NewMutex(s, apple.Name()), "a Mutex of its name is the same")
	before := cluster.AppliedIndex()
	_, _, err := theirs.TryAnyN(within(t), 3)
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	require.Equal(t, before, cluster.AppliedIndex())

	two, numbers, err := theirs.TryAnyN(within(t), 2)
	require.NoError(t, err)
	require.Len(t, numbers, 2)
	require.NotContains(t, numbers, taken)
	require.IsIncreasing(t, numbers)
	for i := range 3 {
		requireBusy(t, mine.Stripe(i))
	}
	unlock(t, two)
	for _, i := range numbers {
		unlock(t, tryLock(t, mine.Stripe(i)))
	}
	unlock(t, apple)
	all, numbers, err := mine.AnyN(within(t), 3)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, numbers)
	_, _, err = theirs.TryAnyN(within(t), 1)
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	unlock(t, all)
	require.Zero(t, tickets(t, client))
	_, _, err = etcdlock.NewStriped(s, "many", 200).AnyN(within(t), 129)
	require.ErrorAs(t, err, new(*etcdlock.TooManyError))
	_, err = etcdlock.NewStriped(s, strings.Repeat("x", 511), 2).For("apple").Lock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrInvalidName, "with the number it is too long")
}

func TestDoAnyNTellsWhichStripesItRunsWith(t *testing.T) {
	cluster, client := newCluster(t)
	s := etcdlock.NewStriped(newSession(t, cluster.Client(t)), "stock", 3)
	held := lock(t, s.Stripe(1))
	err := s.DoAnyN(within(t), 2, func(ctx context.Context, h *etcdlock.Hold, stripes []int) error {
		require.Equal(t, []int{0, 2}, stripes)
		require.Len(t, h.Guards(), 2)
		require.NoError(t, etcdlock.RequireHeld(ctx, "stock/2"))
		require.NoError(t, etcdlock.RequireHeld(ctx, "stock"))
		require.ErrorIs(t, etcdlock.RequireHeld(ctx, "stock/1"), etcdlock.ErrNotHeld)
		return io.EOF
	})
	require.ErrorIs(t, err, io.EOF)
	unlock(t, held)
	require.ErrorIs(t, s.DoAnyN(cancelled(), 2, func(context.Context, *etcdlock.Hold, []int) error { return nil }), context.Canceled)
	awaitTickets(t, client, 0)
}
