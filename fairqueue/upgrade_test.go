package fairqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

const (
	x = fairqueue.Exclusive
	s = fairqueue.Shared
	u = fairqueue.Upgradeable
)

// upgrading upgrades in the background, and returns when the barrier is in line.
func upgrading(t *testing.T, ticket *fairqueue.Ticket, q *fairqueue.Queue) <-chan error {
	t.Helper()
	before := len(entriesOf(t, q))
	upgrade := background(t, func() error { return ticket.Upgrade(within(t, patience)) })
	eventually(t, "the barrier is in line", func() bool { return len(entriesOf(t, q)) > before })
	return upgrade
}

func requireOwners(t *testing.T, q *fairqueue.Queue, tickets ...*fairqueue.Ticket) {
	t.Helper()
	var want, owns []string
	for _, ticket := range tickets {
		want = append(want, ticket.Key())
	}
	for _, e := range entriesOf(t, q) {
		if e.Owns {
			owns = append(owns, e.Key)
		}
	}
	require.Equal(t, want, owns)
}

// unmarking fits the transactions of an upgrade that remove the mark.
func unmarking(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && r.Success[len(r.Success)-1].GetRequestPut() != nil && len(r.Compare) > 0 &&
		r.Compare[len(r.Compare)-1].Target == etcdserverpb.Compare_MOD
}

func TestAnUpgradeableTicketOwnsBesideSharedOnesOnly(t *testing.T) {
	_, client, q := beginQueue(t)
	before := hold(t, q, s)
	upgradeable := hold(t, q, u)
	after := try(t, q, s)
	requireBusy(t, q, x)
	requireBusy(t, q, u)
	second := join(t, q, u)
	require.False(t, second.Granted())
	waiting := wait(t, within(t, patience), second)
	behind := try(t, q, s)
	requireOwners(t, q, before, upgradeable, after, behind)
	requireWaiting(t, waiting)
	require.Equal(t, fairqueue.Upgradeable, entriesOf(t, q)[1].Mode)

	leave(t, upgradeable)
	requireGranted(t, waiting)
	for _, ticket := range []*fairqueue.Ticket{before, second, after, behind} {
		leave(t, ticket)
	}
	owner := hold(t, q, x)
	requireBusy(t, q, u)
	require.NoError(t, owner.Share(within(t, patience)))
	requireBusy(t, q, u) // the owner may be upgraded
	leave(t, owner)
	leave(t, try(t, q, u))
	require.Empty(t, keysUnder(t, client, "q"))
}

func TestAnUpgradeWithoutSharedTicketsIsOneTransaction(t *testing.T) {
	c, _, q := beginQueue(t)
	ticket := hold(t, q, u)
	waiter := join(t, q, x)
	before := c.AppliedIndex()
	require.NoError(t, ticket.Upgrade(within(t, patience)))
	require.NoError(t, ticket.Upgrade(within(t, patience)), "again")
	require.Equal(t, before+1, c.AppliedIndex())
	requireOwners(t, q, ticket)
	require.Equal(t, fairqueue.Exclusive, entriesOf(t, q)[0].Mode)
	requireBusy(t, q, s)
	leave(t, waiter)
	require.NoError(t, ticket.Share(within(t, patience)))
	reader := try(t, q, s)
	leave(t, ticket)
	leave(t, reader)
}

// The readers on both sides of it are waited for, also one that has not looked. Those that come later wait.
func TestAnUpgradeWaitsForSharedTicketsThatAreAheadOfItsBarrier(t *testing.T) {
	c, client, q := beginQueue(t)
	first := hold(t, q, s)
	ticket := hold(t, q, u)
	second := join(t, q, s)
	upgrade := upgrading(t, ticket, q)
	late := standing(t, c, join(t, q, s))
	requireBusy(t, q, s)
	require.NoError(t, second.Wait(within(t, patience)), "it looks now")
	leave(t, second)
	requireWaiting(t, upgrade)
	requireOwners(t, q, first, ticket)
	leave(t, first)
	requireGranted(t, upgrade)
	requireOwners(t, q, ticket)
	require.Len(t, keysUnder(t, client, "q"), 2, "no barrier")
	requireWaiting(t, late)
	require.NoError(t, ticket.Share(within(t, patience)))
	requireGranted(t, late)
	leave(t, ticket)
}

// More of them than a look brings back at first.
func TestAnUpgradeWaitsForManySharedTickets(t *testing.T) {
	_, _, q := beginQueue(t)
	var readers []*fairqueue.Ticket
	for range 70 {
		readers = append(readers, hold(t, q, s))
	}
	ticket := hold(t, q, u)
	readers = append(readers, hold(t, q, s))
	upgrade := upgrading(t, ticket, q)
	for _, reader := range readers {
		requireWaiting(t, upgrade)
		leave(t, reader)
	}
	requireGranted(t, upgrade)
	requireOwners(t, q, ticket)
}

func TestAnUpgradeIsAheadOfWritersAndTheirReaders(t *testing.T) {
	c, _, q := beginQueue(t)
	ticket := hold(t, q, u)
	writer, giveUp := context.WithCancel(within(t, patience))
	watches := spyOnWatches(c)
	writing := wait(t, writer, join(t, q, x))
	watches.await(t, 1)
	reading := wait(t, within(t, patience), join(t, q, s))
	watches.await(t, 2)
	require.NoError(t, ticket.Upgrade(within(t, patience)))
	requireOwners(t, q, ticket)
	requireWaiting(t, writing)
	requireWaiting(t, reading)
	// The writer gives up. Without the mark the reader waits for the ticket.
	giveUp()
	require.ErrorIs(t, result(t, writing), context.Canceled)
	watches.await(t, 3)
	requireWaiting(t, reading)
	leave(t, ticket)
	requireGranted(t, reading)
}

// The writer that was the barrier leaves between the look and the transaction. So the reader behind it owns.
func TestAnUpgradeWhoseBarrierLeavesWaitsForTheReadersBehindIt(t *testing.T) {
	c, _, q := beginQueue(t)
	ticket := hold(t, q, u)
	writer := join(t, q, x)
	reader := join(t, q, s)
	reading := standing(t, c, reader)
	held := c.Hold("Txn", embedtest.When(func(message any) bool { return unmarking(message) && leavesToo(message) }))
	upgrade := background(t, func() error { return ticket.Upgrade(within(t, patience)) })
	require.NoError(t, held.Wait(within(t, patience)))
	leave(t, writer)
	requireGranted(t, reading)
	held.Heal()
	eventually(t, "it waits again", func() bool { return len(entriesOf(t, q)) == 3 })
	requireWaiting(t, upgrade)
	leave(t, reader)
	requireGranted(t, upgrade)
	requireOwners(t, q, ticket)
}

func TestAnUpgradeThatIsGivenUpLeavesNothing(t *testing.T) {
	c, client, q := beginQueue(t)
	reader := hold(t, q, s)
	ticket := hold(t, q, u)
	ctx, cancel := context.WithCancel(within(t, patience))
	upgrade := background(t, func() error { return ticket.Upgrade(ctx) })
	eventually(t, "the barrier is in line", func() bool { return len(keysUnder(t, client, "q")) == 3 })
	late := join(t, q, s)
	reading := standing(t, c, late)
	cancel()
	require.ErrorIs(t, result(t, upgrade), context.Canceled)
	requireGranted(t, reading)
	requireOwners(t, q, reader, ticket, late)
	leave(t, reader)
	leave(t, late)
	require.NoError(t, ticket.Upgrade(within(t, patience)), "it can be tried again")
	requireOwners(t, q, ticket)
}

func TestALostReplyOfAnUpgradeIsHarmless(t *testing.T) {
	c, client, q := beginQueue(t)
	ticket := hold(t, q, u)
	upgrade := func() error { return ticket.Upgrade(within(t, patience)) }
	require.NoError(t, during(t, c.LoseReply("Txn", embedtest.Once(), embedtest.When(unmarking)), upgrade, nothing))
	requireOwners(t, q, ticket)

	require.NoError(t, ticket.Share(within(t, patience)))
	reader := hold(t, q, s)
	upgraded := upgrading(t, ticket, q)
	fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(unmarking))
	leave(t, reader)
	require.NoError(t, fault.Wait(within(t, patience)))
	fault.Heal()
	requireGranted(t, upgraded)
	requireOwners(t, q, ticket)
	eventually(t, "no barrier", func() bool { return len(keysUnder(t, client, "q")) == 1 })
}

// The mark was removed, but the caller has not been told so.
func TestAnUpgradeThatEndsInDoubtPutsTheMarkBack(t *testing.T) {
	c, client, q := beginQueue(t)
	ticket := hold(t, q, u)
	lose := func() *embedtest.Fault { return c.LoseReply("Txn", embedtest.When(unmarking)) }
	for _, readers := range []int{0, 1} {
		ctx, cancel := context.WithCancel(within(t, patience))
		start := func() <-chan error { return background(t, func() error { return ticket.Upgrade(ctx) }) }
		var fault *embedtest.Fault
		var upgrade <-chan error
		if readers == 0 {
			fault = lose()
			upgrade = start()
		} else {
			reader := hold(t, q, s)
			upgrade = start()
			eventually(t, "the barrier is in line", func() bool { return len(keysUnder(t, client, "q")) == 3 })
			fault = lose() // not of the attempt before, which readers refuse
			leave(t, reader)
		}
		require.NoError(t, fault.Wait(within(t, patience)))
		cancel()
		require.ErrorIs(t, result(t, upgrade), context.Canceled)
		fault.Heal()
		eventuallyOnly(t, q, ticket)
		leave(t, hold(t, q, s))
	}
	require.NoError(t, ticket.Upgrade(within(t, patience)))
	requireBusy(t, q, s)
}

// eventuallyOnly waits until the ticket is alone in the queue.
func eventuallyOnly(t *testing.T, q *fairqueue.Queue, ticket *fairqueue.Ticket) {
	t.Helper()
	eventually(t, "nothing else is there", func() bool { return len(entriesOf(t, q)) == 1 })
	requireOwners(t, q, ticket)
}

// A transaction of an upgrade that was given up arrives when readers own.
func TestALateAttemptOfAnUpgradeChangesNothing(t *testing.T) {
	for name, after := range map[string]func(*testing.T, *fairqueue.Ticket){
		"nothing":         func(*testing.T, *fairqueue.Ticket) {},
		"another upgrade": func(t *testing.T, u *fairqueue.Ticket) { require.NoError(t, u.Upgrade(within(t, patience))) },
	} {
		t.Run(name, func(t *testing.T) {
			c, client, q := beginQueue(t)
			reader := hold(t, q, s)
			ticket := hold(t, q, u)
			ctx, cancel := context.WithCancel(within(t, patience))
			upgrade := background(t, func() error { return ticket.Upgrade(ctx) })
			eventually(t, "the barrier is in line", func() bool { return len(keysUnder(t, client, "q")) == 3 })
			held := c.Hold("Txn", embedtest.When(unmarking), embedtest.Once())
			leave(t, reader)
			require.NoError(t, held.Wait(within(t, patience)))
			cancel()
			require.ErrorIs(t, result(t, upgrade), context.Canceled)
			eventuallyOnly(t, q, ticket)
			after(t, ticket)
			if name == "another upgrade" {
				require.NoError(t, ticket.Share(within(t, patience)))
			}
			late := hold(t, q, s)
			arrive(t, c, held)
			requireOwners(t, q, ticket, late)
			leave(t, late)
		})
	}
}

// It was sent when there was no reader. One came and left before it arrives.
func TestALateFirstAttemptOfAnUpgradeChangesNothing(t *testing.T) {
	c, client, q := beginQueue(t)
	ticket := hold(t, q, u)
	ctx, cancel := context.WithCancel(within(t, patience))
	held := c.Hold("Txn", embedtest.When(unmarking), embedtest.Once())
	upgrade := background(t, func() error { return ticket.Upgrade(ctx) })
	require.NoError(t, held.Wait(within(t, patience)))
	reader := hold(t, q, s)
	eventually(t, "the barrier is in line", func() bool { return len(keysUnder(t, client, "q")) == 3 })
	cancel()
	require.ErrorIs(t, result(t, upgrade), context.Canceled)
	leave(t, reader)
	eventuallyOnly(t, q, ticket)
	eventuallyWritten(t, client, ticket)
	arrive(t, c, held)
	require.Equal(t, fairqueue.Upgradeable, entriesOf(t, q)[0].Mode)
	leave(t, try(t, q, s))
}

// eventuallyWritten waits until the mark has been put back.
func eventuallyWritten(t *testing.T, client *clientv3.Client, ticket *fairqueue.Ticket) {
	t.Helper()
	eventually(t, "the mark is put back", func() bool {
		answer, err := client.Get(within(t, patience), ticket.Key())
		require.NoError(t, err)
		return len(answer.Kvs) == 1 && answer.Kvs[0].ModRevision > ticket.Revision()
	})
}

// Etcd answers only after the caller has gone.
func TestAMarkThatAnUpgradeHasRemovedIsPutBackInTheBackground(t *testing.T) {
	c, _, q := beginQueue(t)
	ticket := hold(t, q, u)
	removed := c.LoseReply("Txn", embedtest.When(unmarking), embedtest.Once())
	ctx, cancel := context.WithCancel(within(t, patience))
	upgrade := background(t, func() error { return ticket.Upgrade(ctx) })
	require.NoError(t, removed.Wait(within(t, patience)))
	lost := c.LoseRequest("Txn", embedtest.When(unmarking))
	cancel()
	require.ErrorIs(t, result(t, upgrade), context.Canceled)
	requireBusy(t, q, s)
	again, stop := context.WithTimeout(within(t, patience), 20*time.Millisecond)
	defer stop()
	require.ErrorIs(t, result(t, background(t, func() error { return ticket.Upgrade(again) })), context.DeadlineExceeded)
	lost.Heal()
	eventually(t, "readers own", func() bool { return entriesOf(t, q)[0].Mode == fairqueue.Upgradeable })
	leave(t, hold(t, q, s))
	require.NoError(t, ticket.Upgrade(within(t, patience)))
	requireOwners(t, q, ticket)
}

// It would remove a ticket that has the name of the barrier by now.
func TestALateAttemptOfAnUpgradeRemovesNoTicketButItsBarrier(t *testing.T) {
	c, client, q := beginQueue(t)
	reader := hold(t, q, s)
	ticket := hold(t, q, u)
	other := newQueue(t, client)
	writer := join(t, other, x)
	ctx, cancel := context.WithCancel(within(t, patience))
	upgrade := background(t, func() error { return ticket.Upgrade(ctx) })
	eventually(t, "the barrier is in line", func() bool { return len(keysUnder(t, client, "q")) == 4 })
	barrier := entriesOf(t, q)[3]
	held := c.Hold("Txn", embedtest.When(func(message any) bool { return unmarking(message) && leavesToo(message) }))
	leave(t, reader)
	require.NoError(t, held.Wait(within(t, patience)))
	lost := c.LoseRequest("Txn", embedtest.When(func(message any) bool { return unmarking(message) && !leavesToo(message) }))
	cancel()
	require.ErrorIs(t, result(t, upgrade), context.Canceled)
	require.NoError(t, lost.Wait(within(t, patience)), "the mark is not put back")
	defer lost.Heal()
	eventually(t, "the barrier is gone", func() bool { return revisionOf(t, client, barrier.Key) == 0 })
	var again *fairqueue.Ticket
	for again == nil || again.Key() != barrier.Key {
		again = join(t, q, x)
	}
	arrive(t, c, held)
	require.Equal(t, again.Revision(), revisionOf(t, client, again.Key()))
	require.Equal(t, fairqueue.Upgradeable, entriesOf(t, q)[0].Mode)
	leave(t, writer)
}

// leavesToo fits the transactions of an upgrade that also remove its barrier.
func leavesToo(message any) bool { return len(message.(*etcdserverpb.TxnRequest).Success) == 2 }

func TestAnUpgradeOfWhatIsLostIsAnError(t *testing.T) {
	_, client, q := beginQueue(t)
	ticket := hold(t, q, u)
	reader := hold(t, q, s)
	upgrade := upgrading(t, ticket, q)
	remove(t, client, ticket.Key())
	leave(t, reader)
	require.ErrorIs(t, result(t, upgrade), fairqueue.ErrGone)
	eventuallyEmpty(t, client, "q")
	require.ErrorIs(t, ticket.Upgrade(within(t, patience)), fairqueue.ErrGone)

	own := open(t, client)
	ticket = hold(t, queueAt(own, "q"), u)
	reader = hold(t, q, s)
	upgrade = upgrading(t, ticket, q)
	require.NoError(t, own.Close(within(t, patience)))
	require.ErrorIs(t, result(t, upgrade), session.ErrClosed)
	requireOwners(t, q, reader)
	leave(t, reader)
	require.Empty(t, keysUnder(t, client, "q"))
	require.Panics(t, func() { _ = hold(t, q, s).Upgrade(within(t, patience)) })
	require.Panics(t, func() {
		other := queueAt(open(t, client), "other")
		_, _ = fairqueue.JoinN(within(t, patience), open(t, client), 2, fairqueue.Place{Queue: q, Mode: u}, fairqueue.Place{Queue: other, Mode: x})
	})
}

// A person has removed it.
func TestAnUpgradeWithoutItsBarrierIsAnErrorAndNoLoss(t *testing.T) {
	_, client, q := beginQueue(t)
	reader := hold(t, q, s)
	ticket := hold(t, q, u)
	upgrade := upgrading(t, ticket, q)
	barrier := entriesOf(t, q)[2]
	require.Equal(t, "upgrade", barrier.Owner.Mark)
	require.Contains(t, barrier.Owner.Within, ticket.Key())
	remove(t, client, barrier.Key)
	leave(t, reader)
	err := result(t, upgrade)
	require.ErrorContains(t, err, "the place in line of the upgrade was removed")
	require.NotErrorIs(t, err, session.ErrLost)
	requireOwners(t, q, ticket)
	require.NoError(t, ticket.Upgrade(within(t, patience)))
}

func TestAnUpgradeNeedsNoEvent(t *testing.T) {
	c, client := begin(t)
	q := fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 20 * time.Millisecond})
	reader := hold(t, q, s)
	ticket := hold(t, q, u)
	fault := c.SwallowWatchEvents()
	defer fault.Heal()
	upgrade := upgrading(t, ticket, q)
	remove(t, client, entriesOf(t, q)[2].Key)
	require.ErrorContains(t, result(t, upgrade), "the place in line of the upgrade was removed")
	upgrade = upgrading(t, ticket, q)
	leave(t, reader)
	requireGranted(t, upgrade)
}
