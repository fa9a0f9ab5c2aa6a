package fairqueue_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Readers that stand next to each other share; a reader behind a writer waits.
func TestAdjacentReadersShareAndNobodyOvertakes(t *testing.T) {
	c, _, q := beginQueue(t)
	watches := spyOnWatches(c)
	line := []*fairqueue.Ticket{hold(t, q, fairqueue.Exclusive)}
	waiting := []<-chan error{nil}
	for _, mode := range "ssxssx" {
		ticket := join(t, q, fairqueue.Mode(mode))
		line, waiting = append(line, ticket), append(waiting, standing(t, c, ticket))
	}
	grants := func(from, to int) {
		t.Helper()
		for _, granted := range waiting[from:to] {
			requireGranted(t, granted)
		}
		for _, later := range waiting[to:] {
			requireWaiting(t, later)
		}
	}
	leave(t, line[0])
	grants(1, 3)
	leave(t, line[2]) // which the writer watches; reader 1 is still there
	watches.await(t, 7)
	grants(3, 3)
	leave(t, line[1])
	grants(3, 4)
	leave(t, line[3])
	grants(4, 6)
	leave(t, line[4])
	leave(t, line[5])
	grants(6, 7)
	leave(t, line[6])

	// Readers in a queue of readers do not wait at all; a writer joins behind them.
	first, second, third := hold(t, q, fairqueue.Shared), hold(t, q, fairqueue.Shared), try(t, q, fairqueue.Shared)
	writer := wait(t, within(t, patience), join(t, q, fairqueue.Exclusive))
	requireBusy(t, q, fairqueue.Shared)
	for _, reader := range []*fairqueue.Ticket{second, first, third} {
		requireWaiting(t, writer)
		leave(t, reader)
	}
	requireGranted(t, writer)
}

// A queue at a raw prefix is shared with programs that use etcd's own package.
func TestForeignTicketsStandInTheSameLine(t *testing.T) {
	_, client, q := beginQueue(t)
	foreign := func() *concurrency.Mutex {
		s, err := concurrency.NewSession(client)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return concurrency.NewMutex(s, "q")
	}
	theirs, behind := foreign(), foreign()
	require.NoError(t, theirs.Lock(within(t, patience)))
	requireBusy(t, q, fairqueue.Exclusive)
	requireBusy(t, q, fairqueue.Shared)
	ours := join(t, q, fairqueue.Exclusive)
	oursGranted := wait(t, within(t, patience), ours)
	behindGranted := background(t, func() error { return behind.Lock(within(t, patience)) })
	eventually(t, "it has joined", func() bool { return len(keysUnder(t, client, "q")) == 3 })
	reader := join(t, q, fairqueue.Shared)
	readerGranted := wait(t, within(t, patience), reader)
	require.ErrorIs(t, foreign().TryLock(within(t, patience)), concurrency.ErrLocked)

	entries := entriesOf(t, q)
	require.Len(t, entries, 4)
	require.Equal(t, []string{theirs.Key(), ours.Key(), reader.Key()}, []string{entries[0].Key, entries[1].Key, entries[3].Key})
	require.Equal(t, fairqueue.Exclusive, entries[2].Mode)
	require.Zero(t, entries[2].Owner)

	requireWaiting(t, oursGranted)
	require.NoError(t, theirs.Unlock(within(t, patience)))
	requireGranted(t, oursGranted)
	requireWaiting(t, behindGranted)
	leave(t, ours)
	requireGranted(t, behindGranted)
	requireWaiting(t, readerGranted)
	require.NoError(t, behind.Unlock(within(t, patience)))
	requireGranted(t, readerGranted)
}

func TestLooksReachBeyondTheKeysOfNestedAndNeighbouringQueues(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	// Plain keys under nested prefixes, sorted before, between and behind tickets.
	for _, key := range []string{"a/b/zzz", "a/0/0", "a/s1/1", "a/z/z", "a/x1-0/x1-0", "ab", "a", "a0"} {
		put(t, client, key)
	}
	// Many foreign keys of other queues in between: the looks reach beyond them.
	q := queueAt(s, "a")
	for _, modes := range [][2]fairqueue.Mode{
		{fairqueue.Exclusive, fairqueue.Exclusive}, {fairqueue.Exclusive, fairqueue.Shared}, {fairqueue.Shared, fairqueue.Exclusive},
	} {
		first := hold(t, q, modes[0])
		require.Len(t, entriesOf(t, q), 1)
		putMany(t, client, fmt.Sprintf("a/n%d", modes))
		second := join(t, q, modes[1])
		granted := standing(t, c, second)
		leave(t, first)
		requireGranted(t, granted)
		leave(t, second)

		for _, mode := range modes {
			ticket := try(t, q, mode)
			leave(t, ticket)
		}
	}
}

// Where the join's own answer does not tell, a TryJoin looks, and takes its
// ticket back if it may not.
func TestATryJoinThatMayNotLookLeavesNothing(t *testing.T) {
	c, client, q := beginQueue(t)
	putMany(t, client, "q/b")
	standing := len(keysUnder(t, client, "q"))
	fault := c.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	require.ErrorIs(t, ways["try"].join(within(t, patience), q), rpctypes.ErrPermissionDenied)
	fault.Heal()
	eventually(t, "its ticket is gone", func() bool { return len(keysUnder(t, client, "q")) == standing })
}

// Somebody slips in between the read and the write of a TryJoin.
func TestTryJoinThatIsOvertakenIsBusyAndLeavesNothing(t *testing.T) {
	for _, nested := range []bool{false, true} {
		t.Run(fmt.Sprint("nested=", nested), func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			q := queueAt(s, "q")
			if nested {
				put(t, client, "q/other/1")
			}
			fault := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
			tried := during(t, fault, func() error { return ways["try"].join(within(t, patience), q) }, func() {
				put(t, client, "q/1234")
			})
			require.ErrorIs(t, tried, fairqueue.ErrBusy)
			remove(t, client, "q/1234")
			require.Equal(t, nameOf(s, fairqueue.Exclusive, 0), hold(t, q, fairqueue.Exclusive).Key(), "the name is free again")
		})
	}
}

func TestASessionHasNoSuccessorAndAClosedKeeperHasNone(t *testing.T) {
	_, client := begin(t)
	keeper := session.Keep(client)
	s := open(t, client)
	revoke(t, client, s)
	_, err := queueAt(s, "q").Join(within(t, patience), fairqueue.Exclusive)
	require.ErrorIs(t, err, session.ErrLost)
	require.NoError(t, keeper.Close(within(t, patience)))
	q := queueAt(keeper, "q")
	_, err = q.Join(within(t, patience), fairqueue.Exclusive)
	require.ErrorIs(t, err, session.ErrClosed)
	_, _, err = q.Entries(within(t, patience))
	require.NoError(t, err, "looking needs no session")
}

// Invariant 8: tickets of one queue never have the same revision, whatever goes out together.
func TestJoinsOfOneQueueNeverTieAndAreGrantedInTurn(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	var mu sync.Mutex
	var order []int64
	visit := func(prefix string) error {
		ctx := within(t, patience)
		ticket, err := queueAt(s, prefix).Join(ctx, fairqueue.Exclusive)
		if err != nil {
			return err
		}
		if err := ticket.Wait(ctx); err != nil {
			return err
		}
		if prefix == "q0" {
			if !mu.TryLock() {
				return errors.New("two own q0 at a time")
			}
			order = append(order, ticket.Revision())
			mu.Unlock()
		}
		return ticket.Leave(ctx)
	}
	held := c.Hold("Txn", embedtest.Times(8)) // so that what follows goes out together
	var visits []<-chan error
	for i := range 60 {
		visits = append(visits, background(t, func() error { return visit(fmt.Sprint("q", i%3)) }))
	}
	require.NoError(t, held.Wait(within(t, patience)))
	held.Heal()
	for _, visited := range visits {
		require.NoError(t, result(t, visited))
	}
	require.Len(t, order, 20)
	require.IsIncreasing(t, order)
}
