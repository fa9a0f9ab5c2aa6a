package fairqueue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

func joinPermits(t testing.TB, q *fairqueue.Queue, weight, size int64) *fairqueue.Ticket {
	t.Helper()
	ticket, err := q.JoinPermits(within(t, patience), weight, size)
	require.NoError(t, err)
	return ticket
}

// holdPermits takes permits that are free.
func holdPermits(t testing.TB, q *fairqueue.Queue, weight, size int64) *fairqueue.Ticket {
	t.Helper()
	ticket := joinPermits(t, q, weight, size)
	require.True(t, ticket.Granted())
	require.NoError(t, ticket.Wait(within(t, patience)))
	return ticket
}

func tryPermits(t testing.TB, q *fairqueue.Queue, weight, size int64) *fairqueue.Ticket {
	t.Helper()
	ticket, err := q.TryPermits(within(t, patience), weight, size)
	require.NoError(t, err)
	return ticket
}

func requireNoPermits(t testing.TB, q *fairqueue.Queue, weight, size int64) {
	t.Helper()
	require.ErrorIs(t, errorOf(q.TryPermits(within(t, patience), weight, size)), fairqueue.ErrBusy)
}

// storeRevision rises with every write.
func storeRevision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	answer, err := client.Get(within(t, patience), "elsewhere")
	require.NoError(t, err)
	return answer.Header.Revision
}

// ticketsUnder lists the keys of tickets, without the one that says the size.
func ticketsUnder(t testing.TB, client *clientv3.Client, prefix string) []string {
	t.Helper()
	tickets := []string{}
	for _, key := range keysUnder(t, client, prefix) {
		if !strings.HasPrefix(key, prefix+"/!size/") {
			tickets = append(tickets, key)
		}
	}
	return tickets
}

// Light requests behind it neither starve it nor are granted before it.
func TestAHeavyRequestIsServedInItsTurn(t *testing.T) {
	c, _, q := beginQueue(t)
	watches := spyOnWatches(c)
	first, second := holdPermits(t, q, 1, 3), holdPermits(t, q, 1, 3)
	heavy := joinPermits(t, q, 3, 3)
	heavyWaits := standing(t, c, heavy)
	light := joinPermits(t, q, 1, 3)
	require.False(t, light.Granted(), "although there is a permit left")
	lightWaits := standing(t, c, light)
	requireNoPermits(t, q, 1, 3)

	leave(t, first)
	watches.await(t, 3) // the heavy one has looked
	requireWaiting(t, heavyWaits)
	requireWaiting(t, lightWaits)
	leave(t, second)
	requireGranted(t, heavyWaits)
	watches.await(t, 4) // so has the light one
	requireWaiting(t, lightWaits)
	leave(t, heavy)
	requireGranted(t, lightWaits)
}

// A ticket of another kind at the same prefix takes all there is.
func TestPermitsAndOtherTicketsExcludeEachOther(t *testing.T) {
	c, client, q := beginQueue(t)
	holdPermits(t, q, 1, 9)
	put(t, client, "q/694d")
	waiting := standing(t, c, joinPermits(t, q, 1, 9))
	requireNoPermits(t, q, 1, 9)
	requireBusy(t, q, fairqueue.Exclusive)
	requireBusy(t, q, fairqueue.Shared)
	requireWaiting(t, waiting)
	remove(t, client, "q/694d")
	requireGranted(t, waiting)
}

// The queue is longer than what a join brings back.
func TestPermitsOfALongQueueAreGrantedInOrder(t *testing.T) {
	_, client, q := beginQueue(t)
	const size, waiters = 7, 70
	holder := holdPermits(t, q, size, size)
	var line []*fairqueue.Ticket
	for range waiters {
		line = append(line, joinPermits(t, q, 1, size))
		require.False(t, line[len(line)-1].Granted())
	}
	behind := joinPermits(t, newQueue(t, client), size, size)
	require.False(t, behind.Granted())
	leave(t, holder)
	for i, ticket := range line {
		require.NoError(t, ticket.Wait(within(t, patience)))
		requireNoPermits(t, q, 1, size)
		if i >= size-1 {
			leave(t, line[i-size+1])
		}
	}
	waiting := wait(t, within(t, patience), behind)
	for _, ticket := range line[waiters-size+1:] {
		requireWaiting(t, waiting)
		leave(t, ticket)
	}
	requireGranted(t, waiting)
}

// Programs of earlier versions may have recorded the largest size ever behind the size.
func TestASizeIsReadWhateverTheLargestWas(t *testing.T) {
	_, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 20 * time.Millisecond})
	put(t, client, "q/!size/1-3")
	first := holdPermits(t, q, 1, 1)
	second := joinPermits(t, q, 1, 1)
	waiting := wait(t, within(t, patience), second)
	resize(t, q, 2)
	requireGranted(t, waiting)
	require.Contains(t, keysUnder(t, client, "q"), "q/!size/2-2")
	leave(t, first)
	leave(t, second)
}

func TestASlotIsFoundAfterAResize(t *testing.T) {
	_, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.Options{Slots: true})
	one, late := holdPermits(t, q, 1, 2), joinPermits(t, q, 1, 2)
	require.Zero(t, one.Slot)
	require.Zero(t, late.Revision(), "a permit fences nothing")
	require.Equal(t, -1, late.Slot)
	resize(t, q, 4)
	two := holdPermits(t, q, 1, 4)
	require.Equal(t, 1, two.Slot)
	require.NoError(t, late.Wait(within(t, patience)), "it was granted when there were two")
	require.Equal(t, 2, late.Slot)
	for _, ticket := range []*fairqueue.Ticket{one, two, late} {
		require.Len(t, ticket.Guards(), 2)
		require.Equal(t, ticket.Revision(), revisionOf(t, client, ticket.Key()))
		leave(t, ticket)
	}
	require.Empty(t, ticketsUnder(t, client, "q"))
	require.Empty(t, keysUnder(t, client, "q!"))
}

func TestTheSizeOfAQueueThatNobodyUsesCanBeForgotten(t *testing.T) {
	_, client, q := beginQueue(t)
	ticket := holdPermits(t, q, 1, 3)
	require.ErrorIs(t, q.Forget(within(t, patience)), fairqueue.ErrBusy)
	leave(t, ticket)
	require.NoError(t, q.Forget(within(t, patience)))
	require.Empty(t, keysUnder(t, client, ""))
	require.NoError(t, q.Forget(within(t, patience)), "there is nothing to forget")
	leave(t, holdPermits(t, q, 1, 5))
}

func TestAnotherSizeIsNoticedAfterALostReply(t *testing.T) {
	c, client, q := beginQueue(t)
	leave(t, holdPermits(t, q, 1, 3))
	err := during(t, c.LoseReply("Txn", embedtest.Once()), func() error { return errorOf(q.JoinPermits(within(t, patience), 1, 2)) }, nothing)
	requireSizeError(t, err, fairqueue.SizeError{Asked: 2, Agreed: 3})
	eventually(t, "no ticket is left", func() bool { return len(ticketsUnder(t, client, "q")) == 0 })
}

// As the cost table says.
func TestManyPlacesCostAReadOrTwoMore(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	for mode, most := range map[fairqueue.Mode]int64{fairqueue.Exclusive: 2, fairqueue.Shared: 5} {
		before := c.Calls("Txn")
		g := joinAll(t, s, placesWith(s, 127, fairqueue.Options{}, mode)...)
		require.True(t, g.Granted())
		require.NoError(t, g.Wait(within(t, patience)))
		require.LessOrEqual(t, c.Calls("Txn")-before, most, "%v", mode)
		leave(t, g)
	}
}
