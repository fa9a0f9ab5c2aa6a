package fairqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// creatingPermits fits the transactions that create a ticket for permits.
func creatingPermits(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) == 4 && r.Success[1].GetRequestTxn() != nil
}

func TestATryForPermitsThatIsGrantedIsOneWrite(t *testing.T) {
	_, client, q := beginQueue(t)
	holdPermits(t, q, 2, 3)
	before := storeRevision(t, client)
	ticket := tryPermits(t, q, 1, 3)
	require.True(t, ticket.Granted())
	require.NoError(t, ticket.Wait(within(t, patience)))
	require.Equal(t, before+1, storeRevision(t, client), "one entry, and no word to anybody")
}

// Tries at the same time do not refuse each other while there is room.
func TestTriesThatComeTogetherAllSucceedIfThereIsRoom(t *testing.T) {
	c, client := begin(t)
	const n = 12
	fault := c.Hold("Txn", embedtest.Times(n), embedtest.When(creatingPermits))
	var tries []<-chan error
	for range n {
		q := newQueue(t, client)
		tries = append(tries, background(t, func() error { return errorOf(q.TryPermits(within(t, patience), 1, n)) }))
	}
	eventually(t, "all have found room", func() bool { return fault.Bites() == n })
	fault.Heal()
	for _, try := range tries {
		require.NoError(t, result(t, try))
	}
	require.Len(t, ticketsUnder(t, client, "q"), n)
	requireNoPermits(t, newQueue(t, client), 1, n)
}

// Somebody takes the last ones between the read and the write.
func TestATryForPermitsThatIsOvertakenIsBusyAndLeavesNothing(t *testing.T) {
	c, client, q := beginQueue(t)
	fault := c.Hold("Txn", embedtest.Once(), embedtest.When(creatingPermits))
	var other *fairqueue.Ticket
	tried := during(t, fault, func() error { return errorOf(q.TryPermits(within(t, patience), 1, 2)) }, func() {
		other = holdPermits(t, newQueue(t, client), 2, 2)
	})
	require.ErrorIs(t, tried, fairqueue.ErrBusy)
	require.Equal(t, []string{other.Key()}, ticketsUnder(t, client, "q"))
}

// A try that finds itself does not wait, whatever size there is by then.
func TestATryForPermitsWhoseReplyIsLostDoesNotWait(t *testing.T) {
	for size, wantErr := range map[int64]error{3: nil, 2: fairqueue.ErrBusy} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c, client := begin(t)
			theirs := newQueue(t, client)
			other := holdPermits(t, theirs, 1, 3)
			fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creatingPermits))
			var ticket *fairqueue.Ticket
			mine := newQueue(t, client)
			tried := during(t, fault, func() (err error) {
				ticket, err = mine.TryPermits(within(t, patience), 2, 3)
				return err
			}, func() { resize(t, theirs, size) })
			require.ErrorIs(t, tried, wantErr)
			if wantErr != nil {
				require.Equal(t, []string{other.Key()}, ticketsUnder(t, client, "q"))
				return
			}
			require.True(t, ticket.Granted())
			require.NoError(t, ticket.Wait(within(t, patience)))
			require.Equal(t, ticket.Revision(), revisionOf(t, client, ticket.Key()))
		})
	}
}

func TestAJoinForPermitsThatGivesUpLeavesNothing(t *testing.T) {
	c, client, q := beginQueue(t)
	fault := c.LoseReply("Txn", embedtest.When(creatingPermits))
	givesUp(t, fault, func(ctx context.Context) error { return errorOf(q.JoinPermits(ctx, 1, 1)) })
	fault.Heal()
	eventually(t, "the queue is empty", func() bool { return len(ticketsUnder(t, client, "q")) == 0 })
}

func TestACancelledWaitForPermitsLeavesNothingAndLetsOthersIn(t *testing.T) {
	c, client, q := beginQueue(t)
	holdPermits(t, q, 1, 2)
	ctx, cancel := context.WithCancel(within(t, patience))
	heavy := joinPermits(t, q, 2, 2)
	heavyWaits := standingUntil(t, ctx, c, heavy)
	light := standing(t, c, joinPermits(t, q, 1, 2))
	requireWaiting(t, light)
	cancel()
	require.ErrorIs(t, result(t, heavyWaits), context.Canceled)
	requireGranted(t, light)
	require.Zero(t, revisionOf(t, client, heavy.Key()))
}

func TestASwallowedReturnOfPermitsIsFoundByTheNextLook(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 50 * time.Millisecond})
	holder := holdPermits(t, q, 2, 2)
	first, second := standing(t, c, joinPermits(t, q, 1, 2)), standing(t, c, joinPermits(t, q, 1, 2))
	c.SwallowWatchEvents()
	leave(t, holder)
	requireGranted(t, first)
	requireGranted(t, second)
}
