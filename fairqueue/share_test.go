package fairqueue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// The mark alone wakes them. A reader behind a writer is not among them.
func TestAnOwnerThatSharesLetsInThoseRightBehind(t *testing.T) {
	c, client, q := beginQueue(t)
	other := newQueue(t, client)
	owner := hold(t, q, fairqueue.Exclusive)
	var line []*fairqueue.Ticket
	var waiting []<-chan error
	for i, mode := range []fairqueue.Mode{fairqueue.Shared, fairqueue.Shared, fairqueue.Exclusive, fairqueue.Shared} {
		line = append(line, join(t, other, mode))
		waiting = append(waiting, standing(t, c, line[i]))
	}
	revision := owner.Revision()
	require.NoError(t, owner.Share(within(t, patience)))
	requireGranted(t, waiting[0])
	requireGranted(t, waiting[1])
	requireWaiting(t, waiting[2])
	requireWaiting(t, waiting[3])
	requireBusy(t, q, fairqueue.Shared) // it would overtake the writer

	// Its place, its token and its owner stay.
	require.Equal(t, revision, revisionOf(t, client, owner.Key()))
	first := entriesOf(t, q)[0]
	require.Equal(t, revision, first.Revision)
	require.Equal(t, fairqueue.Upgradeable, first.Mode)
	require.Equal(t, "shared", first.Owner.Mark)
	require.NotZero(t, first.Owner.PID)
	require.NotZero(t, first.Owner.Since)
	require.Equal(t, owner.Session().Lease(), first.Lease)

	leave(t, line[0])
	leave(t, owner)
	requireWaiting(t, waiting[2])
	leave(t, line[1])
	requireGranted(t, waiting[2])
	requireWaiting(t, waiting[3])
	leave(t, line[2])
	requireGranted(t, waiting[3])
}

// The other order: the reader comes, or its watch stands, when the owner shares already.
func TestReadersThatComeLaterShareAtOnce(t *testing.T) {
	_, client, q := beginQueue(t)
	owner := hold(t, q, fairqueue.Exclusive)
	early := join(t, q, fairqueue.Shared)
	require.NoError(t, owner.Share(within(t, patience)))
	require.NoError(t, owner.Share(within(t, patience)), "again")
	require.NoError(t, early.Wait(within(t, patience)))

	late := join(t, q, fairqueue.Shared)
	require.True(t, late.Granted())
	before := storeRevision(t, client)
	tried := try(t, q, fairqueue.Shared)
	require.NoError(t, tried.Wait(within(t, patience)))
	require.Equal(t, before+1, storeRevision(t, client))
	requireBusy(t, q, fairqueue.Exclusive)
	require.Equal(t, before+1, storeRevision(t, client))

	// One more than a join brings back, so the readers have to look for the mark.
	putMany(t, client, "q/a")
	hold(t, q, fairqueue.Shared)
	try(t, q, fairqueue.Shared)
}

// A writer comes in between the read and the write of a try.
func TestATryToShareThatIsOvertakenByAWriterIsBusy(t *testing.T) {
	c, client, q := beginQueue(t)
	owner := hold(t, q, fairqueue.Exclusive)
	require.NoError(t, owner.Share(within(t, patience)))
	fault := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	var writer *fairqueue.Ticket
	tried := during(t, fault, func() error { return ways["try to share"].join(within(t, patience), q) }, func() {
		writer = join(t, newQueue(t, client), fairqueue.Exclusive)
	})
	require.ErrorIs(t, tried, fairqueue.ErrBusy)
	require.ElementsMatch(t, []string{owner.Key(), writer.Key()}, keysUnder(t, client, "q"))
}

func TestALostReplyOfShareIsHarmless(t *testing.T) {
	c, client, q := beginQueue(t)
	owner := hold(t, q, fairqueue.Exclusive)
	fault := c.LoseReply("Txn", embedtest.Once())
	require.NoError(t, during(t, fault, func() error { return owner.Share(within(t, patience)) }, nothing))
	require.Equal(t, owner.Revision(), revisionOf(t, client, owner.Key()))
	require.True(t, join(t, q, fairqueue.Shared).Granted())
}

func TestSharingWhatIsLostIsAnError(t *testing.T) {
	_, client, q := beginQueue(t)
	owner := hold(t, q, fairqueue.Exclusive)
	remove(t, client, owner.Key())
	put(t, client, owner.Key()) // of somebody else, and not to be touched
	require.ErrorIs(t, owner.Share(within(t, patience)), fairqueue.ErrGone)
	require.Empty(t, entriesOf(t, q)[0].Value)
	remove(t, client, owner.Key())

	s := open(t, client)
	owner = hold(t, queueAt(s, "q"), fairqueue.Exclusive)
	revoke(t, client, s)
	require.ErrorIs(t, owner.Share(within(t, patience)), session.ErrLost)
	require.Empty(t, keysUnder(t, client, "q"))
	require.Panics(t, func() { _ = hold(t, q, fairqueue.Shared).Share(within(t, patience)) })
}
