package etcdlock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// Goroutines count as much as processes, on one session or several.
func TestNoMoreHoldALockThanItsKindAllows(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		one := b.open(b.session, "orders")
		lockers := []etcdlock.Locker{one, one, b.open(b.session, "orders"), b.orders(t), b.orders(t)}
		ctx := within(t)
		var inside, total atomic.Int32
		var working sync.WaitGroup
		for _, l := range lockers {
			working.Go(func() {
				for range 6 {
					assert.NoError(t, etcdlock.Do(ctx, l, func(_ context.Context, h *etcdlock.Hold) error {
						defer inside.Add(-1)
						assert.LessOrEqual(t, int(inside.Add(1)), b.width)
						total.Add(1)
						return h.Err()
					}))
				}
			})
		}
		working.Wait()
		require.EqualValues(t, 6*len(lockers), total.Load())
	})
}

func TestAsManyHoldALockAsItsKindAllows(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		mine, theirs := b.open(b.session, "orders"), b.orders(t)
		holds := b.fill(t, mine)
		if b.width == many {
			unlockAll(t, append(holds, tryLock(t, theirs))...)
			return
		}
		b.requireBusy(t, theirs)
		waiting := b.wait(within(t), t, theirs, len(holds))
		b.requireBusy(t, mine)
		requireWaiting(t, waiting)
		for _, h := range holds {
			require.NoError(t, h.Err())
		}
		unlockAll(t, holds...)
		unlock(t, granted(t, waiting))
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		blocker := lock(t, b.blocker())
		lockers := []etcdlock.Locker{b.open(b.session, "orders"), b.orders(t)}
		var waiting []<-chan result
		for i := range 8 {
			waiting = append(waiting, b.wait(within(t), t, lockers[i%2], i+1))
		}
		requireWaiting(t, waiting...)
		unlock(t, blocker)
		var holds []*etcdlock.Hold
		last := blocker.Token()
		for i, w := range waiting {
			if i >= b.width {
				requireWaiting(t, waiting[i:]...)
				unlock(t, holds[i-b.width])
			}
			h := granted(t, w)
			if _, numbered := h.Slot(); !numbered {
				require.Greater(t, h.Token(), last)
			} else if i >= b.width { // tokens rise from one owner of a number to the next
				require.Greater(t, h.Token(), holds[i-b.width].Token())
			}
			last = h.Token()
			holds = append(holds, h)
		}
		unlockAll(t, holds...) // the second time for most
	})
}

func TestAWaiterThatLeavesChangesNothingForTheOthers(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		blocker := lock(t, b.blocker())
		l := b.orders(t)
		first := b.wait(within(t), t, l, 1)
		ctx, cancel := context.WithCancel(within(t))
		leaving := b.wait(ctx, t, l, 2)
		last := b.wait(within(t), t, l, 3)
		cancel()
		r := await(t, "the waiter that leaves", leaving)
		require.ErrorIs(t, r.err, context.Canceled)
		require.Nil(t, r.hold)
		b.awaitInLine(t, 3)
		requireWaiting(t, last)
		unlock(t, blocker)
		unlock(t, granted(t, first))
		unlock(t, granted(t, last))
	})
}

func TestAContextThatIsOverTakesNothing(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.orders(t)
		before := b.cluster.AppliedIndex()
		for _, call := range bothCalls(l) {
			h, err := call(cancelled())
			require.ErrorIs(t, err, context.Canceled)
			require.Nil(t, h)
		}
		require.Equal(t, before, b.cluster.AppliedIndex())
	})
}

func TestACancellationThatRacesTheGrantIsEitherOr(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.orders(t)
		for range 12 {
			blocker := lock(t, b.blocker())
			ctx, cancel := context.WithCancel(within(t))
			waiting := b.wait(ctx, t, l, 1)
			go cancel()
			unlock(t, blocker)
			switch r := await(t, "the waiter", waiting); r.err {
			case nil:
				for _, key := range keysOf(r.hold) {
					require.Len(t, keysAt(t, b.client, key), 1)
				}
				require.NoError(t, r.hold.Err())
				unlock(t, r.hold)
			default:
				require.ErrorIs(t, r.err, context.Canceled)
				require.Nil(t, r.hold)
			}
			requireNothingLeft(t, b.client)
		}
	})
}

func TestARefusedTryLockOfAnyKindWritesNothing(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.orders(t)
		unlock(t, lock(t, l)) // for the size of a semaphore
		blocker := lock(t, b.blocker())
		before := b.cluster.AppliedIndex()
		for range 5 {
			b.requireBusy(t, l)
		}
		require.Equal(t, before, b.cluster.AppliedIndex())
		unlock(t, blocker)
		h := tryLock(t, l)
		require.Len(t, keysOf(h), b.keys)
		unlock(t, h)
	})
}

// In etcd's election a candidate "leads" beside the leader then (E21128).
func TestACompactionWhileWaitingIsInvisible(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		client, link := b.cluster.Link(t)
		l := b.open(newSession(t, client), "orders")
		blocker := lock(t, b.blocker())
		waiting := b.wait(within(t), t, l, 1)
		for _, released := range []bool{false, true} {
			link.Cut()
			if released {
				unlock(t, blocker)
			}
			for range 10 {
				_, err := b.client.Put(within(t), "elsewhere", "")
				require.NoError(t, err)
			}
			remove(t, b.client, "elsewhere")
			_, err := b.cluster.Compact(within(t))
			require.NoError(t, err)
			before := b.cluster.Calls("Watch")
			link.Heal()
			if !released {
				awaitWatch(t, b.cluster, before)
				requireWaiting(t, waiting)
				require.NoError(t, blocker.Err())
			}
		}
		unlock(t, granted(t, waiting))
	})
}

func TestNestedNamesAreIndependent(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		var holds []*etcdlock.Hold
		for _, name := range []string{"orders", "orders/a", "orders/a/b", "ordersa"} {
			holds = append(holds, tryLock(t, b.open(b.session, name)))
		}
		for _, name := range []string{"b", "b/a"} { // the longer one is there first
			inner := lock(t, b.open(b.session, name+"/c"))
			outer := lock(t, b.open(b.session, name))
			holds = append(holds, inner, outer)
		}
		unlockAll(t, holds...)
	})
}

func TestNamesThatCannotBeAreRefusedByEveryKind(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		before := b.requests()
		for _, name := range []string{"", strings.Repeat("x", 513), "a\xffb"} {
			for _, call := range bothCalls(b.open(b.session, name)) {
				_, err := call(within(t))
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
				require.ErrorAs(t, err, new(*etcdlock.Error))
			}
		}
		require.Equal(t, before, b.requests())
	})
}
