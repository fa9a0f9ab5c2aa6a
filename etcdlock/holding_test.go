package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Most holds are short and need not pay for a watch.
func TestAShortHoldCostsNoWatch(t *testing.T) {
	cluster, _ := newCluster(t)
	m := newMutex(t, cluster)
	before := cluster.Calls("Watch")
	keys := map[string]bool{}
	for range 200 {
		h := lock(t, m)
		keys[h.Key()] = true
		unlock(t, h)
	}
	require.Equal(t, before, cluster.Calls("Watch"))
	// Etcd's ranges walk over deleted names until they are compacted. BenchmarkUncontended
	// shows that a lock stays as fast.
	require.Len(t, keys, 1, "one name in etcd's index, whatever the age")
}

func TestAHoldKeepsTheValuesOfItsContextButNotItsEnd(t *testing.T) {
	cluster, _ := newCluster(t)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(within(t), key{}, "value"))
	h, err := newMutex(t, cluster).Lock(ctx)
	require.NoError(t, err)
	cancel()
	require.NoError(t, h.Err())
	require.NoError(t, h.Context().Err())
	require.Equal(t, "value", h.Context().Value(key{}))
	unlock(t, h)
}

func TestEnsureRenewsOnlyIfNeedBe(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, client, session.WithTTL(time.Hour), session.WithMargin(time.Minute)), "orders"))
	before := cluster.Calls("LeaseKeepAlive")

	require.NoError(t, h.Ensure(within(t), 30*time.Minute))
	require.Equal(t, before, cluster.Calls("LeaseKeepAlive"), "there was that much left")

	// Time has passed since the lease was granted, so there is less than 59 minutes
	// left, but not much less.
	deadline := h.Deadline()
	require.Error(t, h.Ensure(within(t), 59*time.Minute+30*time.Second), "more than a renewal can give")
	require.Greater(t, cluster.Calls("LeaseKeepAlive"), before)
	require.True(t, h.Deadline().After(deadline))

	unlock(t, h)
	require.ErrorIs(t, h.Ensure(within(t), time.Second), etcdlock.ErrUnlocked)
}

// What is done for one hold in the context of another, which ends in between because that other is lost.
func TestALossElsewhereIsNoLossHere(t *testing.T) {
	c := newContest(t)
	term := c.lead("a")
	writer := lock(t, etcdlock.NewRWMutex(newSession(t, c.cluster.Client(t)), "mine"))
	for name, call := range map[string]func(context.Context) error{
		"proclaim":  func(ctx context.Context) error { return term.Proclaim(ctx, "b") },
		"transfer":  func(ctx context.Context) error { return term.Transfer(ctx, "b") },
		"downgrade": writer.Downgrade,
		"ensure":    func(ctx context.Context) error { return writer.Ensure(ctx, longTTL) },
	} {
		var faults []*embedtest.Fault
		bitten := make(chan struct{}, 10)
		for _, method := range []string{"Range", "Txn", "LeaseKeepAlive"} {
			faults = append(faults, c.cluster.Hold(method, embedtest.When(func(any) bool { bitten <- struct{}{}; return true })))
		}
		ctx, cancel := context.WithCancelCause(within(t))
		called := background(func() error { return call(ctx) })
		await(t, "a request", bitten)
		cancel(fmt.Errorf("that of elsewhere: %w", fairqueue.ErrGone))
		err := await(t, name, called)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorContains(t, err, "elsewhere", "it is told why")
		require.NotErrorIs(t, err, etcdlock.ErrLost)
		for _, fault := range faults {
			fault.Heal()
		}
		require.NoError(t, term.Err(), name)
		require.NoError(t, writer.Err(), name)
	}
	unlock(t, writer)
	resign(t, term)
}

// The context of the call is the hold's own, and ends because of the loss.
func TestACallInTheContextOfALostHoldTellsTheLoss(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *contest) (*etcdlock.Hold, func(context.Context) error){
		"ensure": func(t *testing.T, c *contest) (*etcdlock.Hold, func(context.Context) error) {
			h := lock(t, newMutex(t, c.cluster))
			return h, func(ctx context.Context) error { return h.Ensure(ctx, longTTL) }
		},
		"proclaim": func(_ *testing.T, c *contest) (*etcdlock.Hold, func(context.Context) error) {
			term := c.lead("a")
			return term.Hold, func(ctx context.Context) error { return term.Proclaim(ctx, "b") }
		},
		"downgrade": func(t *testing.T, c *contest) (*etcdlock.Hold, func(context.Context) error) {
			h := lock(t, etcdlock.NewRWMutex(newSession(t, c.client), "orders"))
			return h, h.Downgrade
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			h, call := begin(t, c)
			write, renewal := c.cluster.Hold("Txn", embedtest.When(creates)), c.cluster.Hold("LeaseKeepAlive")
			called := background(func() error { return call(h.Context()) })
			require.Eventually(t, func() bool { return write.Bites()+renewal.Bites() > 0 }, patience, waitABit)
			remove(t, c.client, h.Key())
			require.ErrorIs(t, await(t, name, called), etcdlock.ErrLost)
		})
	}
}

// That the hold was lost is the news, whatever becomes of the release.
func TestUnlockAfterALossSaysSoEvenIfEtcdIsSilent(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, newMutex(t, cluster))
	remove(t, client, h.Key())
	_, err := h.Txn(within(t)).Commit()
	require.ErrorIs(t, err, etcdlock.ErrLost)
	silence := cluster.LoseRequest("Txn")
	defer silence.Heal()
	require.ErrorIs(t, h.Unlock(cancelled()), etcdlock.ErrLost)
}

// Of three endpoints one swallows packets, and for one of the waiters it is the
// one that serves its watch. That one has to wait until it looks without being told.
func TestABlackHoledEndpointDoesNotStopAWaiter(t *testing.T) {
	cluster, client := newCluster(t, embedtest.WithSize(3))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	holder := newSession(t, client)
	var holds []*etcdlock.Hold
	var waiting []<-chan result
	for i, member := range cluster.Members() {
		behind, link := cluster.Link(t)
		name := member.Name()
		holds = append(holds, lock(t, etcdlock.NewMutex(holder, name)))
		waiting = append(waiting, locking(ctx, etcdlock.NewMutex(newSession(t, behind), name)))
		awaitTickets(t, client, 2*(i+1))
		link.Blackhole(member)
	}
	unlockAll(t, holds...)
	for i := range waiting {
		r := <-waiting[i]
		require.NoError(t, r.err)
		require.NoError(t, r.hold.Err())
	}
}

// exclusives are the kinds whose holders can ask whether others wait.
var exclusives = []string{"Mutex", "Mutex at a prefix", "RWMutex", "stripe", "candidate of Election"}

func TestAHolderLearnsThatAnotherWaits(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		h := lock(t, b.open(b.session, "orders"))
		defer unlock(t, h)
		if !slices.Contains(exclusives, b.title) {
			require.ErrorContains(t, h.Wanted(within(t)), "only the exclusive hold", b.title)
			return
		}
		ctx, cancel := context.WithCancel(within(t))
		wanted := background(func() error { return h.Wanted(within(t)) })
		requireWaiting(t, wanted)
		waiting := b.wait(ctx, t, b.orders(t), 1)
		require.NoError(t, await(t, "the news", wanted))
		require.NoError(t, h.Wanted(within(t)), "it is wanted already")
		cancel()
		require.ErrorIs(t, await(t, "giving up", waiting).err, context.Canceled)
	})
}

func TestWantedEndsWithItsContextOrTheHold(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster)
	h := lock(t, m)
	require.ErrorIs(t, h.Wanted(cancelled()), context.Canceled)
	released := background(func() error { return h.Wanted(within(t)) })
	requireWaiting(t, released)
	unlock(t, h)
	require.ErrorIs(t, await(t, "the end", released), etcdlock.ErrUnlocked)

	h = lock(t, m)
	lost := background(func() error { return h.Wanted(within(t)) })
	requireWaiting(t, lost)
	remove(t, client, h.Key())
	require.ErrorIs(t, await(t, "the end", lost), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

func TestASharedOrKeptHoldDoesNotKnowWhetherItIsWanted(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	downgraded := lock(t, etcdlock.NewRWMutex(s, "downgraded"))
	require.NoError(t, downgraded.Downgrade(within(t)))
	for _, h := range []*etcdlock.Hold{downgraded, lock(t, etcdlock.NewMutex(s, "kept", kept))} {
		require.ErrorContains(t, h.Wanted(within(t)), "only the exclusive hold")
	}
}
