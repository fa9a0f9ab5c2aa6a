package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func slot(t *testing.T, h *etcdlock.Hold) int {
	t.Helper()
	number, ok := h.Slot()
	require.True(t, ok)
	return number
}

func TestSlotsAreDistinctAndTheLowestFree(t *testing.T) {
	p := newPool(t, 4, etcdlock.WithSlots())
	other, _ := p.other(t, etcdlock.WithSlots())
	lockers := []*etcdlock.Semaphore{p.Semaphore, other}
	holds := make([]*etcdlock.Hold, 4)
	for i := range holds {
		holds[i] = lock(t, lockers[i%2])
		require.Equal(t, i, slot(t, holds[i]))
	}
	requireBusy(t, p)
	for _, i := range []int{2, 0, 3, 1} {
		old := holds[i].Token()
		unlock(t, holds[i])
		holds[i] = tryLock(t, lockers[i%2])
		require.Equal(t, i, slot(t, holds[i]))
		require.Greater(t, holds[i].Token(), old, "tokens of a slot rise")
	}
	unlock(t, holds[3])
	unlock(t, holds[1])
	for _, i := range []int{1, 3} {
		holds[i] = lock(t, other)
		require.Equal(t, i, slot(t, holds[i]))
	}
	unlockAll(t, holds...)
	requireNothingLeft(t, p.client)
}

// The token of a slot is what fences, so it must rise although a ticket that joined early may
// get its slot late. So it does when the holder has crashed.
func TestTheTokenOfASlotIsNotThatOfThePlaceInLine(t *testing.T) {
	p := newPool(t, 3, etcdlock.WithSlots())
	victim, s := p.other(t, etcdlock.WithSlots())
	a, b, c := lock(t, p.Semaphore), lock(t, victim), lock(t, p.Semaphore)
	waiting := queued(t, p.client, p.Semaphore, 6) // two of each
	lose(t, p.client, s)
	next := granted(t, waiting)
	require.Equal(t, 1, slot(t, next))
	require.Greater(t, next.Token(), b.Token())
	require.Equal(t, createdAt(t, p.client, next.Key()), next.Token())
	require.Len(t, next.Guards(), 2)
	require.ErrorIs(t, b.Unlock(within(t)), etcdlock.ErrLost)
	unlockAll(t, a, c, next)
}

// For the second transaction.
func TestALostReplyToTheSlotLeavesOneSlot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		p := etcdlock.NewSemaphore(virtualSession(t, client), "pool", 2, etcdlock.WithSlots())
		fault := cluster.LoseReply("Txn", embedtest.Once(), touches("etcdlock/pool!/slot/", creates))
		one, two := lock(t, p), lock(t, p)
		require.Equal(t, 1, fault.Bites())
		require.Equal(t, []int{0, 1}, []int{slot(t, one), slot(t, two)})
		unlockAll(t, one, two)
		require.Empty(t, keysAt(t, client, ""))
	})
}

func TestOnlySinglePermitsHaveSlots(t *testing.T) {
	p := newPool(t, 4, etcdlock.WithSlots())
	before := p.cluster.AppliedIndex()
	for _, call := range bothCalls(weighted{p.Semaphore, 2}) {
		_, err := call(within(t))
		require.ErrorContains(t, err, "only one permit")
	}
	require.Equal(t, before, p.cluster.AppliedIndex())

	plain, s := p.other(t)
	for _, l := range []etcdlock.Locker{plain, etcdlock.NewMutex(s, "orders"), etcdlock.NewRWMutex(s, "data").RLocker()} {
		h := lock(t, l)
		number, ok := h.Slot()
		require.False(t, ok)
		require.Zero(t, number)
		unlock(t, h)
	}
}

// A user without slots would hold a permit that has no number, while the numbers count up to the size.
func TestASemaphoreIsUsedWithSlotsByAllOrByNone(t *testing.T) {
	t.Parallel()
	for name, slotted := range map[string]bool{"first with": true, "first without": false} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, 2)
			numbered, _ := p.other(t, etcdlock.WithSlots())
			first, second := numbered, p.Semaphore
			if !slotted {
				first, second = second, first
			}
			requireMixed := func() {
				t.Helper()
				for _, call := range bothCalls(second) {
					_, err := call(within(t))
					var size *etcdlock.SizeError
					require.ErrorAs(t, err, &size)
					require.True(t, size.Slots)
					require.ErrorContains(t, err, "WithSlots")
				}
			}
			h := lock(t, first)
			requireMixed()
			unlock(t, h)
			requireMixed()
			require.NoError(t, second.Resize(within(t), 3), "that is not changed by a Resize")
			h = lock(t, first)
			requireMixed()
			unlock(t, h)
			require.Eventually(t, func() bool { return second.Forget(within(t)) == nil }, patience, waitABit)

			// A size that is set by Resize says as well whether there are slots.
			require.NoError(t, second.Resize(within(t), 3))
			requireSlots := func(opts []etcdlock.Option, want bool) {
				_, err := etcdlock.NewSemaphore(newSession(t, p.client), "pool", 3, opts...).Lock(within(t))
				require.Equal(t, want, err == nil, err)
			}
			requireSlots([]etcdlock.Option{etcdlock.WithSlots()}, !slotted)
			requireSlots(nil, slotted)
		})
	}
}
