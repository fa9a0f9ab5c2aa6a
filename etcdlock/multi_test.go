package etcdlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func allOf(s *session.Session, names ...string) *etcdlock.Multi {
	var locks []etcdlock.Lockable
	for _, name := range names {
		locks = append(locks, etcdlock.NewMutex(s, name))
	}
	return etcdlock.NewMulti(s, locks...)
}

// Scenario M1: each would have the first of its locks and wait for the other's, if they came
// one by one.
func TestOppositeOrdersCannotDeadlock(t *testing.T) {
	cluster, client := newCluster(t)
	names := []string{"a", "b", "c", "d"}
	ctx := within(t)
	var working sync.WaitGroup
	var inside sync.Map // name to who is there
	for i := range 4 {
		s := newSession(t, cluster.Client(t))
		random := rand.New(rand.NewPCG(uint64(i), 1))
		working.Go(func() {
			for range 15 {
				var mine []string
				for _, j := range random.Perm(len(names))[:2+random.IntN(2)] {
					mine = append(mine, names[j])
				}
				h, err := allOf(s, mine...).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				for _, name := range mine {
					if other, taken := inside.LoadOrStore(name, i); taken {
						t.Errorf("%v has %s", other, name)
					}
				}
				for _, name := range mine {
					inside.Delete(name)
				}
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	require.Zero(t, tickets(t, client))
}

// Money is moved between accounts under their two locks, with guarded writes; readers take all
// accounts, shared. No amount is ever seen on its way.
func TestTransfersUnderTwoLocksKeepTheSum(t *testing.T) {
	t.Parallel()
	const accounts, each = 4, 100
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	ctx := within(t)
	balance := func(i int) string { return fmt.Sprint("balance/", i) }
	for i := range accounts {
		_, err := client.Put(ctx, balance(i), fmt.Sprint(each))
		require.NoError(t, err)
	}
	read := func(i int) (amount int, err error) {
		answer, err := client.Get(ctx, balance(i))
		if err == nil {
			_, err = fmt.Sscan(string(answer.Kvs[0].Value), &amount)
		}
		return amount, err
	}
	transfer := func(s *session.Session, from, to, amount int) error {
		return etcdlock.Do(ctx, allOf(s, balance(from), balance(to)), func(ctx context.Context, h *etcdlock.Hold) error {
			for i, change := range map[int]int{from: -amount, to: amount} { // two writes, not one
				old, err := read(i)
				if err != nil {
					return err
				}
				if _, err := h.Txn(ctx).Then(clientv3.OpPut(balance(i), fmt.Sprint(old+change))).Commit(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	count := func(s *session.Session) (sum int, err error) {
		var all []etcdlock.Lockable
		for i := range accounts {
			all = append(all, etcdlock.NewRWMutex(s, balance(i)).RLocker())
		}
		err = etcdlock.Do(ctx, etcdlock.NewMulti(s, all...), func(context.Context, *etcdlock.Hold) error {
			for i := range accounts {
				amount, err := read(i)
				if err != nil {
					return err
				}
				sum += amount
			}
			return nil
		})
		return sum, err
	}
	var working sync.WaitGroup
	for i := range 4 {
		s := newSession(t, cluster.Client(t))
		random := rand.New(rand.NewPCG(uint64(i), 2))
		working.Go(func() {
			for range 12 {
				pair := random.Perm(accounts)
				if err := transfer(s, pair[0], pair[1], 1+random.IntN(9)); err != nil {
					t.Error(err)
				}
				if sum, err := count(s); err != nil || sum != accounts*each {
					t.Errorf("sum %d, %v", sum, err)
				}
			}
		})
	}
	working.Wait()
	require.Zero(t, tickets(t, client))
}

// Scenario M2.
func TestWhatIsPartlyTakenIsNotTakenAtAll(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	mine, theirs := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	client := cluster.Client(t)
	b := lock(t, etcdlock.NewMutex(theirs, "b"))
	before := cluster.AppliedIndex()
	requireBusy(t, allOf(mine, "a", "b", "c"))
	require.Equal(t, before, cluster.AppliedIndex())

	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, allOf(mine, "a", "b", "c"))
	awaitTickets(t, client, 4)
	cancel()
	require.ErrorIs(t, await(t, "the one who gives up", waiting).err, context.Canceled)
	awaitTickets(t, client, 1)

	// Somebody's key of another kind is in the place of a ticket of ours.
	_, err := client.Put(within(t), fmt.Sprintf("etcdlock/d/x%x-0", int64(mine.Lease())), "")
	require.NoError(t, err)
	_, err = allOf(mine, "a", "d").Lock(within(t))
	require.Error(t, err)
	awaitTickets(t, client, 2)
	unlock(t, b)
}

func TestAMultiHoldsEveryPartAtOneRevision(t *testing.T) {
	cluster, client := newCluster(t)
	s, theirs := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	h, err := etcdlock.NewMulti(s, etcdlock.NewMutex(s, "a"), etcdlock.NewRWMutex(s, "b"),
		etcdlock.NewRWMutex(s, "c").RLocker(), etcdlock.NewStriped(s, "d", 3).Stripe(1)).TryLock(within(t))
	require.NoError(t, err)
	require.False(t, h.Shared())
	for _, key := range keysOf(h) {
		answer, err := client.Get(within(t), key)
		require.NoError(t, err)
		require.EqualValues(t, h.Token(), answer.Kvs[0].CreateRevision)
	}
	for _, name := range []string{"a", "b", "c", "d/1"} {
		require.NoError(t, etcdlock.RequireHeld(h.Context(), name))
		requireBusy(t, etcdlock.NewMutex(theirs, name))
	}
	for _, name := range []string{"d", "d/0", h.Name()} {
		require.ErrorIs(t, etcdlock.RequireHeld(h.Context(), name), etcdlock.ErrNotHeld)
	}
	reader, err := etcdlock.NewRWMutex(theirs, "c").TryRLock(within(t))
	require.NoError(t, err, "that part is shared")
	unlockAll(t, h, reader)
}

func TestANameGivenTwiceIsTakenOnceAndExclusivelyIfEitherIs(t *testing.T) {
	cluster, client := newCluster(t)
	s := newSession(t, cluster.Client(t))
	other := etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "a")
	writer, reader := etcdlock.NewRWMutex(s, "a"), etcdlock.NewRWMutex(s, "a").RLocker()
	for _, c := range []struct {
		locks []etcdlock.Lockable
		alone bool
	}{
		{[]etcdlock.Lockable{writer, reader}, true},
		{[]etcdlock.Lockable{reader, etcdlock.NewMutex(s, "a")}, true},
		{[]etcdlock.Lockable{writer, writer, reader, reader}, true},
		{[]etcdlock.Lockable{reader, reader}, false},
		{[]etcdlock.Lockable{writer, etcdlock.NewMutex(s, "etcdlock/a", etcdlock.AtPrefix())}, true}, // the same queue
	} {
		m := etcdlock.NewMulti(s, c.locks...)
		require.Equal(t, "a", m.Name())
		h := lock(t, m)
		require.Equal(t, 1, tickets(t, client))
		r, err := other.TryRLock(within(t))
		if c.alone {
			require.ErrorIs(t, err, etcdlock.ErrBusy)
		} else {
			require.NoError(t, err)
			unlock(t, r)
		}
		unlock(t, h)
	}
}

func TestWithAddsToTheOptionsOfAMulti(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	j, one, two := newJournal(), newJournal(), newJournal()
	m := allOf(s, "a", "b").With(etcdlock.WithMinHold(aLongTime))
	for range 3 {
		m = m.With(etcdlock.WithHooks(j.hooks()))
	}
	withOne := m.With(etcdlock.WithHooks(one.hooks()))
	withTwo := m.With(etcdlock.WithHooks(two.hooks()), etcdlock.WithNamespace("other"), etcdlock.WithLabel("of no effect"), etcdlock.AtPrefix())
	unlock(t, lock(t, withOne))
	for _, happened := range []string{"acquired a+b", "released a+b"} {
		require.Equal(t, happened, one.next(t))
		for range 3 {
			require.Equal(t, happened, j.next(t))
		}
	}
	requireBusy(t, withTwo, "the minimum is not over")
	require.Empty(t, one.calls)
	require.Empty(t, two.calls)
}
