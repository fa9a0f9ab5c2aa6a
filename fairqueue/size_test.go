package fairqueue_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

func resize(t testing.TB, q *fairqueue.Queue, size int64) {
	t.Helper()
	require.NoError(t, q.Resize(within(t, patience), size))
}

func requireSizeError(t testing.TB, err error, want fairqueue.SizeError) {
	t.Helper()
	var got *fairqueue.SizeError
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, *got)
	require.ErrorContains(t, err, fmt.Sprint(want.Asked))
	require.ErrorContains(t, err, fmt.Sprint(want.Agreed))
}

// requireSizeErrors requires it of a join and of a try.
func requireSizeErrors(t testing.TB, q *fairqueue.Queue, weight, size int64, want fairqueue.SizeError) {
	t.Helper()
	requireSizeError(t, errorOf(q.JoinPermits(within(t, patience), weight, size)), want)
	requireSizeError(t, errorOf(q.TryPermits(within(t, patience), weight, size)), want)
}

func TestTheFirstToComeSetsTheSize(t *testing.T) {
	_, client, q := beginQueue(t)
	leave(t, holdPermits(t, q, 1, 3)) // the size stays when everybody has gone
	before := storeRevision(t, client)
	for _, weight := range []int64{4, math.MaxInt64} {
		requireSizeErrors(t, q, weight, 3, fairqueue.SizeError{Asked: weight, Agreed: 3, Weight: true})
	}
	require.Equal(t, before, storeRevision(t, client), "what never fits writes nothing")
	requireSizeErrors(t, q, 1, 2, fairqueue.SizeError{Asked: 2, Agreed: 3})
	require.Empty(t, ticketsUnder(t, client, "q"))
	leave(t, holdPermits(t, q, 3, 3))
	resize(t, q, 4)
	leave(t, holdPermits(t, q, 4, 3))
}

func TestReplacedSizesAreAcceptedAndOthersAreNot(t *testing.T) {
	_, client, q := beginQueue(t)
	resize(t, q, 3) // before anybody has used it
	for size := range int64(40) {
		resize(t, q, 100+size)
	}
	before := storeRevision(t, client)
	resize(t, q, 139)
	require.Equal(t, before, storeRevision(t, client), "it has that size already")
	require.Len(t, keysUnder(t, client, "q"), 1)

	for _, size := range []int64{139, 138, 107} {
		leave(t, holdPermits(t, q, 1, size))
	}
	for _, size := range []int64{3, 106, 140} { // too long ago, or never
		requireSizeErrors(t, q, 1, size, fairqueue.SizeError{Asked: size, Agreed: 139})
	}
	// What counts is the new one.
	resize(t, q, 1)
	requireSizeErrors(t, q, 2, 139, fairqueue.SizeError{Asked: 2, Agreed: 1, Weight: true})
	eventually(t, "no ticket is left", func() bool { return len(ticketsUnder(t, client, "q")) == 0 })
	holdPermits(t, q, 1, 139)
	requireNoPermits(t, q, 1, 139)
}

func TestAGreaterSizeLetsWaitersInAtOnceAndInOrder(t *testing.T) {
	c, _, q := beginQueue(t)
	watches := spyOnWatches(c)
	holdPermits(t, q, 2, 2)
	var waiting []<-chan error
	for _, weight := range []int64{2, 1, 2, 1} {
		waiting = append(waiting, standing(t, c, joinPermits(t, q, weight, 2)))
	}
	resize(t, q, 3)
	watches.await(t, 5) // the first has looked: not enough for it
	for _, w := range waiting {
		requireWaiting(t, w)
	}
	resize(t, q, 6)
	requireGranted(t, waiting[0])
	requireGranted(t, waiting[1])
	watches.await(t, 6) // the third has been told
	requireWaiting(t, waiting[2])
	requireWaiting(t, waiting[3])
	resize(t, q, 8)
	requireGranted(t, waiting[2])
	requireGranted(t, waiting[3])
}

func TestASmallerSizeTakesNothingAwayAndGrantsNothingUntilItFits(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 20 * time.Millisecond})
	var held []*fairqueue.Ticket
	for range 4 {
		held = append(held, holdPermits(t, q, 1, 4))
	}
	first := wait(t, within(t, patience), joinPermits(t, q, 1, 4))
	second := wait(t, within(t, patience), joinPermits(t, q, 1, 4))
	resize(t, q, 2)
	looks := spyOnRequests(c, "Txn", looking)
	for _, i := range []int{3, 0} {
		leave(t, held[i])
		looks.await(t, looks.seen()+5) // of two waiters
		requireWaiting(t, first)
		requireWaiting(t, second)
		requireNoPermits(t, q, 1, 2)
	}
	for _, ticket := range held[1:3] {
		require.NotZero(t, revisionOf(t, client, ticket.Key()))
	}
	leave(t, held[1])
	requireGranted(t, first)
	requireWaiting(t, second)
	leave(t, held[2])
	requireGranted(t, second)
}

func TestAWaiterForMoreThanIsLeftFailsAndLetsTheNextOneIn(t *testing.T) {
	c, client, q := beginQueue(t)
	holdPermits(t, q, 1, 4)
	heavy, light := standing(t, c, joinPermits(t, q, 4, 4)), standing(t, c, joinPermits(t, q, 1, 4))
	resize(t, q, 2)
	requireSizeError(t, result(t, heavy), fairqueue.SizeError{Asked: 4, Agreed: 2, Weight: true})
	requireGranted(t, light)
	require.Len(t, ticketsUnder(t, client, "q"), 2)
}

func TestResizesAtTheSameTimeLeaveOneSizeThatKnowsTheOthers(t *testing.T) {
	_, client, q := beginQueue(t)
	var resizes []<-chan error
	for size := range int64(10) {
		other := newQueue(t, client)
		resizes = append(resizes, background(t, func() error { return other.Resize(within(t, patience), size+1) }))
	}
	for _, r := range resizes {
		require.NoError(t, result(t, r))
	}
	require.Len(t, keysUnder(t, client, "q"), 1)
	for size := range int64(10) {
		leave(t, holdPermits(t, q, 1, size+1))
	}
	for _, size := range []int64{0, -1} {
		require.Panics(t, func() { _ = q.Resize(within(t, patience), size) })
	}
}

func TestResizeIsTriedAgainUntilItIsAnswered(t *testing.T) {
	c, _, q := beginQueue(t)
	fault := c.LoseReply("Txn", embedtest.Once())
	require.NoError(t, during(t, fault, func() error { return q.Resize(within(t, patience), 7) }, nothing))
	holdPermits(t, q, 7, 7)
}

func TestALateResizeDoesNotSetASizeThatHasBeenForgotten(t *testing.T) {
	c, client := begin(t)
	theirs, link := c.Link(t)
	q := queueAt(open(t, theirs), "q")
	resize(t, q, 3)
	held := c.Hold("Txn", embedtest.Once())
	retried(t, held, link, func(ctx context.Context) error { return q.Resize(ctx, 5) })
	require.NoError(t, q.Forget(within(t, patience)))
	arrive(t, c, held)
	require.Empty(t, keysUnder(t, client, "q"))
}

func TestSizesTellEveryChangeInOrder(t *testing.T) {
	c, _, q := beginQueue(t)
	theirs, link := c.Link(t)
	ctx, stop := context.WithCancel(within(t, patience))
	told := make(chan int64, 20)
	following := background(t, func() error {
		for size, err := range fairqueue.New(open(t, theirs), "q", fairqueue.Options{Recheck: 50 * time.Millisecond}).Sizes(ctx) {
			if err != nil {
				return err
			}
			told <- size
		}
		return nil
	})
	t.Cleanup(stop)
	require.Zero(t, <-told, "nobody has used it")
	leave(t, holdPermits(t, q, 1, 3))
	require.EqualValues(t, 3, <-told)
	link.Cut()
	for _, size := range []int64{5, 4, 5} {
		resize(t, q, size)
	}
	link.Heal()
	c.SwallowWatchEvents(embedtest.Once())
	resize(t, q, 9)
	for _, size := range []int64{5, 4, 5, 9} {
		require.Equal(t, size, <-told)
	}
	stop()
	require.NoError(t, result(t, following))
	require.Empty(t, told)
}

// Any name may stand below another one, such as a mutex in a namespace that is the semaphore's prefix.
func TestASemaphoreAndAQueueBelowItWithTheNameOfItsFolderDoNotMeet(t *testing.T) {
	for name, folder := range map[string]string{"a name": "q/size", "the folder itself": "q/!size"} {
		t.Run(name, func(t *testing.T) {
			_, client, q := beginQueue(t)
			mutex := queueAt(open(t, client), folder)
			below := hold(t, mutex, fairqueue.Exclusive)
			resize(t, q, 3)
			resize(t, q, 1)
			permit := holdPermits(t, q, 1, 1)
			requireSizeErrors(t, q, 1, 5, fairqueue.SizeError{Asked: 5, Agreed: 1})
			leave(t, permit)
			require.Equal(t, below.Revision(), revisionOf(t, client, below.Key()))
			if folder != "q/!size" { // where there can be a queue only if it is meant to
				require.ErrorIs(t, q.Forget(within(t, patience)), fairqueue.ErrBusy)
				leave(t, below)
				require.True(t, try(t, mutex, fairqueue.Exclusive).Granted(), "the size is not in its way")
			}
		})
	}
}

// A user that may use the semaphore only has its epochs below it, which are nobody's permits.
func TestASizeCanBeForgottenAfterADoubt(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithAuth("root", embedtest.User{
		Name: "u", Password: "u", Grants: []embedtest.Grant{embedtest.ReadWrite("locks/q/")},
	}))
	client := c.Client(t)
	s := open(t, c.ClientAs(t, "u"))
	q := queueAt(s, "locks/q")
	leave(t, holdPermits(t, q, 1, 3))
	lost := c.Hold("Txn", embedtest.Once(), embedtest.When(creatingPermits))
	givesUp(t, lost, func(ctx context.Context) error { return errorOf(q.JoinPermits(ctx, 1, 3)) })
	eventually(t, "an epoch has begun", func() bool {
		return revisionOf(t, client, fmt.Sprintf("locks/q/!/epoch/%x", s.Lease())) > 0
	})
	require.NoError(t, q.Forget(within(t, patience)))
	require.Empty(t, keysUnder(t, client, "locks/q"))
	put(t, client, "locks/q/!/another") // of a queue below
	require.ErrorIs(t, q.Forget(within(t, patience)), fairqueue.ErrBusy)
	lost.Heal()
}

// Whatever somebody has put into the folder of the size, the first to come agrees on one, and it can be replaced.
func TestASizeIsAgreedOnBesideAStrangersKeyInItsFolder(t *testing.T) {
	for _, name := range []string{"foo", "7", "7-x", "3-2", "x1a2b-0"} {
		t.Run(name, func(t *testing.T) {
			_, client, q := beginQueue(t)
			stray := "q/!size/" + name
			put(t, client, stray)
			first := holdPermits(t, q, 1, 2)
			requireSizeErrors(t, newQueue(t, client), 1, 5, fairqueue.SizeError{Asked: 5, Agreed: 2})
			resize(t, q, 3)
			resize(t, q, 1)
			leave(t, first)
			leave(t, holdPermits(t, q, 1, 2)) // a replaced size, which counts as the new one
			require.ElementsMatch(t, []string{stray, "q/!size/1-1"}, keysUnder(t, client, "q"))

			require.NoError(t, q.Forget(within(t, patience)))
			put(t, client, stray)
			tryPermits(t, q, 1, 5)
			requireSizeErrors(t, q, 1, 2, fairqueue.SizeError{Asked: 2, Agreed: 5})
		})
	}
}

// The retry finds its ticket, and no size.
func TestASizeIsAgreedOnBesideAStrangersKeyWhenAReplyIsLost(t *testing.T) {
	c, client, q := beginQueue(t)
	put(t, client, "q/!size/foo")
	fault := c.LoseReply("Txn", embedtest.Once())
	require.NoError(t, during(t, fault, func() error { return errorOf(q.JoinPermits(within(t, patience), 1, 2)) }, nothing))
	requireSizeErrors(t, q, 1, 3, fairqueue.SizeError{Asked: 3, Agreed: 2})
}

// Two callers at the same time with different sizes do not both get a permit.
func TestConcurrentCallersAgreeOnOneSizeBesideAStrangersKey(t *testing.T) {
	_, client := begin(t)
	put(t, client, "q/!size/foo")
	var joins []<-chan error
	for size := range int64(6) {
		q := newQueue(t, client)
		joins = append(joins, background(t, func() error { return errorOf(q.JoinPermits(within(t, patience), 1, size+6)) }))
	}
	agreed := 0
	for _, j := range joins {
		var differs *fairqueue.SizeError
		if err := result(t, j); err == nil {
			agreed++
		} else {
			require.ErrorAs(t, err, &differs)
		}
	}
	require.Equal(t, 1, agreed)
	require.Len(t, keysUnder(t, client, "q/!size"), 2)
}
