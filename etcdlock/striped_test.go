package etcdlock_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
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

// shelves is the striped lock "stock", seen from two sessions.
type shelves struct {
	cluster      *embedtest.Cluster
	mine, theirs *etcdlock.Striped
	session      *session.Session // of theirs
}

func newShelves(t *testing.T, n int) *shelves {
	t.Helper()
	c := embedtest.Start(t)
	s := newSession(t, c.Client(t))
	return &shelves{
		c, etcdlock.NewStriped(newSession(t, c.Client(t)), "stock", n), etcdlock.NewStriped(s, "stock", n), s,
	}
}

// wait puts one in line, which adds so many tickets.
func (s *shelves) wait(t *testing.T, l etcdlock.Locker, more int) <-chan result {
	t.Helper()
	client := s.cluster.Client(t)
	before := tickets(t, client)
	waiting := locking(within(t), l)
	awaitTickets(t, client, before+more)
	return waiting
}

// It is 64-bit FNV-1a modulo n. Whoever changes that lets two processes of different versions
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
	t.Parallel()
	s := newShelves(t, 3)
	apple := lock(t, s.mine.For("apple")) // 64-bit FNV-1a of it modulo 3
	taken := s.mine.Index("apple")
	requireBusy(t, s.theirs.For("apple"))
	requireBusy(t, etcdlock.NewMutex(s.session, apple.Name()), "a Mutex of its name is the same")
	before := s.cluster.AppliedIndex()
	_, _, err := s.theirs.TryAnyN(within(t), 3)
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	require.Equal(t, before, s.cluster.AppliedIndex())

	two, numbers, err := s.theirs.TryAnyN(within(t), 2)
	require.NoError(t, err)
	require.Len(t, numbers, 2)
	require.NotContains(t, numbers, taken)
	require.IsIncreasing(t, numbers)
	for i := range 3 {
		requireBusy(t, s.mine.Stripe(i))
	}
	unlock(t, two)
	for _, i := range numbers {
		h := tryLock(t, s.mine.Stripe(i))
		unlock(t, h)
	}
	unlock(t, apple)
	all, numbers, err := s.mine.AnyN(within(t), 3)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, numbers)
	_, _, err = s.theirs.TryAnyN(within(t), 1)
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	unlock(t, all)
	require.Zero(t, tickets(t, s.cluster.Client(t)))
}

func TestAnyTakesWhicheverIsReleasedFirst(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 3)
	for released := range 3 {
		var holds []*etcdlock.Hold
		for i := range 3 {
			holds = append(holds, lock(t, s.mine.Stripe(i)))
		}
		one := anyN(s.theirs, 1)
		waiting := s.wait(t, one, 3)
		unlock(t, holds[released])
		h := granted(t, waiting)
		require.Equal(t, []int{released}, *one.numbers)
		require.Greater(t, h.Token(), holds[released].Token())
		require.Equal(t, 3, tickets(t, s.cluster.Client(t)), "its places in the other lines are gone")
		require.NoError(t, etcdlock.RequireHeld(h.Context(), holds[released].Name()))
		require.NoError(t, etcdlock.RequireHeld(h.Context(), "stock"))
		require.ErrorIs(t, etcdlock.RequireHeld(h.Context(), holds[(released+1)%3].Name()), etcdlock.ErrNotHeld)
		unlockAll(t, append(holds, h)...)
	}
	h, number, err := s.mine.Any(within(t))
	require.NoError(t, err)
	require.Contains(t, h.Key(), "stock%2F"+string(rune('0'+number))+"/")
	unlock(t, h)
}

func TestThoseWhoWaitForAnyStripesAreServedInOrder(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 3)
	var holds []*etcdlock.Hold
	for i := range 3 {
		holds = append(holds, lock(t, s.mine.Stripe(i)))
	}
	two, one, last := anyN(s.theirs, 2), anyN(s.mine, 1), anyN(s.theirs, 3)
	first, second, third := s.wait(t, two, 3), s.wait(t, one, 3), s.wait(t, last, 3)
	unlock(t, holds[2])
	requireWaiting(t, second) // it is behind the first there, which keeps it
	unlock(t, holds[0])
	f := granted(t, first)
	require.Equal(t, []int{0, 2}, *two.numbers)
	requireWaiting(t, second)
	unlock(t, holds[1])
	g := granted(t, second)
	require.Equal(t, []int{1}, *one.numbers)
	require.Greater(t, g.Token(), f.Token())
	requireWaiting(t, third)
	unlockAll(t, f, g)
	l := granted(t, third)
	require.Equal(t, []int{0, 1, 2}, *last.numbers)
	unlock(t, l)
	require.Zero(t, tickets(t, s.cluster.Client(t)))
}

func TestAnyThatGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 4)
	all, _, err := s.mine.AnyN(within(t), 4)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, anyN(s.theirs, 2))
	awaitTickets(t, s.cluster.Client(t), 8)
	cancel()
	require.ErrorIs(t, await(t, "the one who gives up", waiting).err, context.Canceled)
	awaitTickets(t, s.cluster.Client(t), 4)
	require.NoError(t, all.Err())

	waiting = s.wait(t, anyN(s.theirs, 1), 4)
	lose(t, s.cluster.Client(t), s.session)
	require.ErrorIs(t, await(t, "the one whose session is lost", waiting).err, etcdlock.ErrLost)
	unlock(t, all)
	require.Zero(t, tickets(t, s.cluster.Client(t)))
}

// Even where all waiters together are more than a transaction can carry.
func TestOneOfManyFreeStripesIsFound(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 200)
	h, numbers, err := s.mine.AnyN(within(t), 60)
	require.NoError(t, err)
	other, theirs, err := s.theirs.TryAnyN(within(t), 60)
	require.NoError(t, err)
	for _, number := range theirs {
		require.NotContains(t, numbers, number)
	}
	unlockAll(t, h, other)
	_, _, err = s.mine.AnyN(within(t), 129)
	var tooMany *etcdlock.TooManyError
	require.ErrorAs(t, err, &tooMany)
}

func TestKeysThatShareAStripeAreOneInAMulti(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 2)
	h := lock(t, etcdlock.NewMulti(s.session, s.theirs.For("apple"), s.theirs.For("pear"), s.theirs.For("a"), s.theirs.For("b")))
	require.Equal(t, 2, tickets(t, s.cluster.Client(t)))
	unlock(t, h)
}

func TestStripesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 3)
	require.Panics(t, func() { etcdlock.NewStriped(s.session, "stock", 0) })
	require.Panics(t, func() { etcdlock.NewStriped(nil, "stock", 1) })
	for _, n := range []int{0, -1, 4} {
		require.Panics(t, func() { _, _, _ = s.mine.AnyN(within(t), n) })
		require.Panics(t, func() { _, _, _ = s.mine.TryAnyN(within(t), n) })
	}
	for _, name := range []string{"", "\xff", strings.Repeat("x", 511)} { // with the number
		bad := etcdlock.NewStriped(s.session, name, 2)
		_, _, err := bad.Any(within(t))
		require.ErrorIs(t, err, etcdlock.ErrInvalidName)
		_, err = bad.For("apple").Lock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	}
}

func TestDoAnyNTellsWhichStripesItRunsWith(t *testing.T) {
	cluster, client := newCluster(t)
	s := etcdlock.NewStriped(newSession(t, cluster.Client(t)), "stock", 3)
	held := lock(t, s.Stripe(1))
	err := s.DoAnyN(within(t), 2, func(ctx context.Context, h *etcdlock.Hold, stripes []int) error {
		require.Equal(t, []int{0, 2}, stripes)
		require.Len(t, h.Guards(), 2)
		require.NoError(t, etcdlock.RequireHeld(ctx, "stock/2"))
		return io.EOF
	})
	require.ErrorIs(t, err, io.EOF)
	unlock(t, held)
	require.ErrorIs(t, s.DoAnyN(cancelled(), 2, func(context.Context, *etcdlock.Hold, []int) error { return nil }), context.Canceled)
	awaitTickets(t, client, 0)
}

// One of a Striped goes by its name, where the stripes have queues of their own.
func TestTheNameOfAStripedIsNotHeldByOneOfIt(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	one, _, err := etcdlock.NewStriped(s, "pool", 2).Any(within(t))
	require.NoError(t, err)
	_, h, err := etcdlock.Reentrant(etcdlock.NewMutex(s, "pool")).TryLock(one.Context())
	require.NoError(t, err)
	unlock(t, h)
	unlock(t, one)
}

// More than a transaction can carry: it waits for some of them, and looks at the others from time to time.
func TestAnyOfMoreStripesThanATransactionCarriesWaits(t *testing.T) {
	t.Parallel()
	s := newShelves(t, 130)
	half, numbers, err := s.mine.AnyN(within(t), 65)
	require.NoError(t, err)
	rest, _, err := s.mine.AnyN(within(t), 65)
	require.NoError(t, err)
	one := anyN(s.theirs, 1)
	waiting := s.wait(t, one, 64)
	unlock(t, half) // in some of these it stands, since there are only 65 others
	h := granted(t, waiting)
	require.Contains(t, numbers, (*one.numbers)[0])
	awaitTickets(t, s.cluster.Client(t), 66)
	unlockAll(t, h, rest)
}
