package etcdlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	t.Parallel()
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
	requireNothingLeft(t, p.cluster.Client(t))
}

// The token of a slot is what fences, so it must rise although a ticket that joined early may
// get its slot late.
func TestTheTokenOfASlotIsNotThatOfThePlaceInLine(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1, etcdlock.WithSlots())
	other, _ := p.other(t, etcdlock.WithSlots())
	first := lock(t, p.Semaphore)
	client := p.cluster.Client(t)
	waiting := locking(within(t), other)
	awaitTickets(t, client, 4) // two of the first, and the size
	unlock(t, first)
	second := granted(t, waiting)
	require.Equal(t, 0, slot(t, second))
	require.Greater(t, second.Token(), first.Token())
	require.Len(t, second.Guards(), 2)
	answer, err := client.Get(within(t), second.Key())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	require.EqualValues(t, second.Token(), answer.Kvs[0].CreateRevision)
	unlock(t, second)
}

// Scenario M6.
func TestTheSlotOfACrashedHolderIsFree(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3, etcdlock.WithSlots())
	victim, s := p.other(t, etcdlock.WithSlots())
	a, b, c := lock(t, p.Semaphore), lock(t, victim), lock(t, p.Semaphore)
	client := p.cluster.Client(t)
	waiting := locking(within(t), p.Semaphore)
	revoke(t, client, s)
	next := granted(t, waiting)
	require.Equal(t, 1, slot(t, next))
	require.Greater(t, next.Token(), b.Token())
	require.ErrorIs(t, s.Renew(within(t)), etcdlock.ErrLost)
	require.ErrorIs(t, b.Unlock(within(t)), etcdlock.ErrLost)
	unlockAll(t, a, c, next)
}

// Scenario R1, for the second transaction.
func TestALostReplyToTheSlotLeavesOneSlot(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2, etcdlock.WithSlots())
	fault := p.cluster.LoseReply("Txn", embedtest.Once(), touches("etcdlock/pool!/slot/", creates))
	h := lock(t, p.Semaphore)
	require.Equal(t, 1, fault.Bites())
	require.Equal(t, 0, slot(t, h))
	other := lock(t, p.Semaphore)
	require.Equal(t, 1, slot(t, other))
	unlockAll(t, h, other)
	require.Empty(t, keysAt(t, p.cluster.Client(t), ""))
}

func TestOnlySinglePermitsHaveSlots(t *testing.T) {
	t.Parallel()
	p := newPool(t, 4, etcdlock.WithSlots())
	before := p.cluster.AppliedIndex()
	_, err := p.Acquire(within(t), 2)
	require.ErrorContains(t, err, "only one permit")
	_, err = p.TryAcquire(within(t), 2)
	require.ErrorContains(t, err, "only one permit")
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

// Whoever comes without would hold a permit that has no number, while the numbers count up to the size.
func TestASemaphoreIsUsedWithSlotsByAllOrByNone(t *testing.T) {
	t.Parallel()
	for name, slotted := range map[string]bool{"first with": true, "first without": false} {
		p := newPool(t, 2)
		first, second := p.Semaphore, p.Semaphore
		if numbered, _ := p.other(t, etcdlock.WithSlots()); slotted {
			first = numbered
		} else {
			second = numbered
		}
		requireMixed := func() {
			t.Helper()
			for _, take := range []func() (*etcdlock.Hold, error){
				func() (*etcdlock.Hold, error) { return second.Lock(within(t)) },
				func() (*etcdlock.Hold, error) { return second.TryLock(within(t)) },
			} {
				_, err := take()
				var size *etcdlock.SizeError
				require.ErrorAs(t, err, &size, name)
				require.True(t, size.Slots, name)
				require.ErrorContains(t, err, "WithSlots", name)
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
		require.Eventually(t, func() bool { return second.Forget(within(t)) == nil }, patience, 5*time.Millisecond)
		unlock(t, lock(t, second))
	}
}

func TestASizeThatIsSetByResizeKnowsWhetherThereAreSlots(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2, etcdlock.WithSlots())
	require.NoError(t, p.Resize(within(t), 3))
	h := lock(t, etcdlock.NewSemaphore(newSession(t, p.cluster.Client(t)), "pool", 3, etcdlock.WithSlots()))
	require.Zero(t, slot(t, h))
	unlock(t, h)
	other, _ := p.other(t)
	_, err := other.Lock(within(t))
	require.Error(t, err)
}
