package fairqueue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// record has the owners of a queue, in one order of time.
type record struct {
	mu      sync.Mutex
	clock   int
	owners  map[*stay]bool
	stays   []*stay
	illegal []string
}

type stay struct {
	revision  int64
	mode      fairqueue.Mode
	came, end int
}

func (r *record) enter(revision int64, m fairqueue.Mode) *stay {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &stay{revision: revision, mode: m, came: r.clock}
	r.clock++
	for other := range r.owners {
		if conflict(s, other) {
			r.illegal = append(r.illegal, fmt.Sprintf("%+v owns together with %+v", s, other))
		}
	}
	r.owners[s] = true
	r.stays = append(r.stays, s)
	return s
}

func (r *record) exit(s *stay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.end = r.clock
	r.clock++
	delete(r.owners, s)
}

func conflict(a, b *stay) bool {
	return a.mode == fairqueue.Exclusive || b.mode == fairqueue.Exclusive
}

// requireFair says that nobody came in before one ahead of it had gone, unless both
// are readers.
func (r *record) requireFair(t *testing.T, served int) {
	t.Helper()
	require.Empty(t, r.illegal)
	require.Len(t, r.stays, served)
	slices.SortFunc(r.stays, func(a, b *stay) int { return cmp.Compare(a.revision, b.revision) })
	for i, later := range r.stays {
		for _, earlier := range r.stays[:i] {
			if conflict(earlier, later) {
				require.Less(t, earlier.end, later.came, "%+v overtook %+v", later, earlier)
			}
		}
	}
}

// Readers that stand next to each other share; a reader behind a writer waits.
func TestAdjacentReadersShareAndNobodyOvertakes(t *testing.T) {
	c, _, q := beginQueue(t)
	watches := spyOnWatches(c)
	line := map[string]*fairqueue.Ticket{"writer 1": hold(t, q, fairqueue.Exclusive)}
	waiting := map[string]<-chan error{}
	for i, who := range []string{"reader 2", "reader 3", "writer 4", "reader 5", "reader 6", "writer 7"} {
		mode := fairqueue.Shared
		if who[0] == 'w' {
			mode = fairqueue.Exclusive
		}
		line[who] = join(t, q, mode)
		waiting[who] = wait(t, within(t, patience), line[who])
		watches.await(t, i+1)
	}
	depart := func(who ...string) {
		for _, w := range who {
			leave(t, line[w])
		}
	}
	enter := func(who ...string) {
		t.Helper()
		for _, w := range who {
			requireGranted(t, waiting[w])
			delete(waiting, w)
		}
		for w, other := range waiting {
			select {
			case err := <-other:
				require.Fail(t, w+" does not wait", "%v", err)
			default:
			}
		}
	}

	depart("writer 1")
	enter("reader 2", "reader 3")
	depart("reader 3") // the one that writer 4 watches; reader 2 is still there
	watches.await(t, 7)
	enter()
	depart("reader 2")
	enter("writer 4")
	depart("writer 4")
	enter("reader 5", "reader 6")
	depart("reader 5", "reader 6")
	enter("writer 7")
	depart("writer 7")

	// Readers in a queue of readers do not wait at all; a writer joins behind them.
	first, second := hold(t, q, fairqueue.Shared), hold(t, q, fairqueue.Shared)
	third := try(t, q, fairqueue.Shared)
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
	_, client := begin(t)
	q := queueAt(open(t, client), "raw")
	foreign := func() *concurrency.Mutex {
		s, err := concurrency.NewSession(client)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return concurrency.NewMutex(s, "raw")
	}
	lock := func(m *concurrency.Mutex) <-chan error {
		standing := len(keysUnder(t, client, "raw"))
		locked := background(t, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return m.Lock(ctx)
		})
		eventually(t, "it has joined", func() bool { return len(keysUnder(t, client, "raw")) > standing })
		return locked
	}

	theirs := foreign()
	requireGranted(t, lock(theirs))
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		_, err := q.TryJoin(within(t, patience), mode)
		require.ErrorIs(t, err, fairqueue.ErrBusy)
	}
	ours := join(t, q, fairqueue.Exclusive)
	oursGranted := wait(t, within(t, patience), ours)
	theirsBehind := foreign()
	theirsBehindGranted := lock(theirsBehind)
	reader := join(t, q, fairqueue.Shared)
	readerGranted := wait(t, within(t, patience), reader)
	require.ErrorIs(t, foreign().TryLock(within(t, patience)), concurrency.ErrLocked)

	entries, _, err := q.Entries(within(t, patience))
	require.NoError(t, err)
	require.Len(t, entries, 4)
	require.Equal(t, []string{theirs.Key(), ours.Key(), theirsBehind.Key(), reader.Key()},
		[]string{entries[0].Key, entries[1].Key, entries[2].Key, entries[3].Key})
	require.Equal(t, fairqueue.Exclusive, entries[2].Mode)
	require.Zero(t, entries[2].Owner)

	requireWaiting(t, oursGranted)
	require.NoError(t, theirs.Unlock(within(t, patience)))
	requireGranted(t, oursGranted)
	requireWaiting(t, theirsBehindGranted)
	requireWaiting(t, readerGranted)
	leave(t, ours)
	requireGranted(t, theirsBehindGranted)
	requireWaiting(t, readerGranted)
	require.NoError(t, theirsBehind.Unlock(within(t, patience)))
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
	c, client := begin(t)
	q := queueAt(open(t, client), "a")
	putMany(t, client, "a/b")
	standing := len(keysUnder(t, client, "a"))
	fault := c.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	_, err := q.TryJoin(within(t, patience), fairqueue.Exclusive)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	fault.Heal()
	eventually(t, "its ticket is gone", func() bool { return len(keysUnder(t, client, "a")) == standing })
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
			tried := background(t, func() error {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, err := q.TryJoin(ctx, fairqueue.Exclusive)
				return err
			})
			require.NoError(t, fault.Wait(within(t, patience)))
			put(t, client, "q/1234")
			before := c.AppliedIndex()
			fault.Heal()
			require.ErrorIs(t, result(t, tried), fairqueue.ErrBusy)
			require.Greater(t, c.AppliedIndex(), before)
			remove(t, client, "q/1234")
			require.Equal(t, fmt.Sprintf("q/x%x-0", s.Lease()), hold(t, q, fairqueue.Exclusive).Key(), "the name is free again")
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

// crowd runs f for every number at once, on queues of one session, while etcd holds the first
// requests back, so that what follows goes out together. It returns how many requests there were.
func crowd(t *testing.T, c *embedtest.Cluster, n int, f func(i int) error) (requests int64) {
	t.Helper()
	before := c.Calls("Txn")
	held := c.Hold("Txn", embedtest.Times(8))
	var working sync.WaitGroup
	results := make(chan error, n)
	for i := range n {
		working.Go(func() { results <- f(i) })
	}
	require.NoError(t, held.Wait(within(t, patience)))
	held.Heal()
	working.Wait()
	for range n {
		require.NoError(t, <-results)
	}
	return c.Calls("Txn") - before
}

// Invariant 8: tickets of one queue never have the same revision, whatever goes out together.
func TestJoinsOfOneQueueNeverTieAndAreGrantedInTurn(t *testing.T) {
	t.Parallel()
	const n = 60
	c := embedtest.Start(t)
	s := open(t, c.Client(t), session.WithTTL(never))
	ctx := within(t, patience)
	var mu sync.Mutex
	var order []int64
	holders := 0
	crowd(t, c, n, func(i int) error {
		q := queueAt(s, fmt.Sprintf("q%d", i%3))
		ticket, err := q.Join(ctx, fairqueue.Exclusive)
		if err != nil {
			return err
		}
		if err := ticket.Wait(ctx); err != nil {
			return err
		}
		if i%3 == 0 {
			mu.Lock()
			order = append(order, ticket.Revision())
			holders++
			alone := holders == 1
			mu.Unlock()
			if !alone {
				return fmt.Errorf("two own q0 at a time")
			}
			mu.Lock()
			holders--
			mu.Unlock()
		}
		return ticket.Leave(ctx)
	})
	require.Len(t, order, n/3)
	require.IsIncreasing(t, order)
}

func TestTriesOfOneQueueThatGoOutTogetherHaveOneWinner(t *testing.T) {
	t.Parallel()
	const n = 40
	c := embedtest.Start(t)
	s := open(t, c.Client(t), session.WithTTL(never))
	ctx := within(t, patience)
	won := make(chan *fairqueue.Ticket, n)
	crowd(t, c, n, func(int) error {
		ticket, err := queueAt(s, "q").TryJoin(ctx, fairqueue.Exclusive)
		if errors.Is(err, fairqueue.ErrBusy) {
			return nil
		}
		won <- ticket
		return err
	})
	require.Len(t, won, 1)
}
