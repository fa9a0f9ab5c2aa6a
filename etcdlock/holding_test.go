package etcdlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Scenario H1.
func TestHolderInABlackHoleIsToldBeforeTheNextOwnerGetsIn(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	cutOff := etcdlock.NewMutex(newSession(t, client, session.WithTTL(3*time.Second), session.WithMargin(time.Second)), "orders")
	other := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")

	old := lock(t, cutOff)
	var granted atomic.Bool
	next := make(chan result, 1)
	go func() {
		h, err := other.Lock(within(t))
		granted.Store(true)
		next <- result{h, err}
	}()
	awaitTickets(t, cluster.Client(t), 2)
	link.Blackhole()

	await(t, "the loss", old.Done())
	require.False(t, granted.Load(), "the next owner was let in first")
	require.ErrorIs(t, old.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, context.Cause(old.Context()), etcdlock.ErrLost)

	r := await(t, "the next owner", next)
	require.NoError(t, r.err)
	require.Greater(t, r.hold.Token(), old.Token())
	unlock(t, r.hold)
}

// Scenario H6. The session's TTL is long, so only the watch can have brought the news.
func TestHolderHearsOfARevokedLease(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	before := cluster.Calls("Watch")
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	awaitWatch(t, cluster, before)

	_, err := cluster.Client(t).Revoke(within(t), s.Lease())
	require.NoError(t, err)
	await(t, "the loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)
}

// Scenario H7.
func TestHolderHearsThatItsKeyWasDeleted(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	m := etcdlock.NewMutex(s, "orders")
	before := cluster.Calls("Watch")
	h := lock(t, m)
	awaitWatch(t, cluster, before)

	_, err := cluster.Client(t).Delete(within(t), h.Key())
	require.NoError(t, err)
	await(t, "the loss", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)

	require.Equal(t, session.Live, s.State(), "only the hold was lost")
	again := lock(t, m)
	require.Equal(t, h.Key(), again.Key(), "the name is free for another ticket")
	require.ErrorIs(t, h.Err(), etcdlock.ErrLost, "and the old hold is none the better for it")
	unlock(t, again)
}

// Most holds are short and need not pay for a watch.
func TestAShortHoldCostsNoWatch(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	before := cluster.Calls("Watch")
	for range 20 {
		unlock(t, lock(t, m))
	}
	require.Equal(t, before, cluster.Calls("Watch"))
}

// Scenario H11.
func TestAKeeperLocksAgainAfterALoss(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	keeper := session.Keep(cluster.Client(t), session.WithTTL(longTTL))
	defer func() { require.NoError(t, keeper.Close(context.Background())) }()
	m := etcdlock.NewMutex(keeper, "orders")

	old := lock(t, m)
	s, err := keeper.Session(within(t))
	require.NoError(t, err)
	_, err = cluster.Client(t).Revoke(within(t), s.Lease())
	require.NoError(t, err)

	// Nobody has told the session yet: the next call is the first to find out.
	again := lock(t, m)
	require.NoError(t, again.Err())
	require.Greater(t, again.Token(), old.Token())
	require.ErrorIs(t, old.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, old.Unlock(within(t)), etcdlock.ErrLost)
	require.NoError(t, again.Err())
	unlock(t, again)
}

// Scenario H12: goroutines exclude each other whether they share a Mutex, a session or
// nothing.
func TestGoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	one, two := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
	shared := etcdlock.NewMutex(one, "orders")
	mutexes := []*etcdlock.Mutex{shared, shared, etcdlock.NewMutex(one, "orders"), etcdlock.NewMutex(two, "orders")}

	var inside, total atomic.Int32
	var working sync.WaitGroup
	for _, m := range mutexes {
		working.Go(func() {
			for range 15 {
				h, err := m.Lock(within(t))
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				total.Add(1)
				inside.Add(-1)
				if err := h.Unlock(within(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	require.EqualValues(t, 60, total.Load())
	require.Zero(t, tickets(t, cluster.Client(t)))
}

func TestClosingTheSessionEndsItsHolds(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newSession(t, cluster.Client(t))
	h := lock(t, etcdlock.NewMutex(s, "orders"))
	require.NoError(t, s.Close(within(t)))
	await(t, "the end", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrClosed)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrClosed)
	require.Zero(t, tickets(t, cluster.Client(t)))
}

func TestAHoldKeepsTheValuesOfItsContextButNotItsEnd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders")
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(within(t), key{}, "value"))
	h, err := m.Lock(ctx)
	require.NoError(t, err)
	cancel()
	require.NoError(t, h.Err())
	require.NoError(t, h.Context().Err())
	require.Equal(t, "value", h.Context().Value(key{}))

	unlock(t, h)
	await(t, "the end", h.Done())
	require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
	require.ErrorIs(t, context.Cause(h.Context()), etcdlock.ErrUnlocked)
}

func TestEnsureRenewsOnlyIfNeedBe(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m := etcdlock.NewMutex(newSession(t, cluster.Client(t), session.WithTTL(time.Hour), session.WithMargin(time.Minute)), "orders")
	h := lock(t, m)
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

// The owner of a lock can be seen by people who look into the queue.
func TestTheLabelIsStoredWithTheTicket(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	h := lock(t, etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLabel("nightly run")))
	answer, err := client.Get(within(t), h.Key())
	require.NoError(t, err)
	require.Contains(t, string(answer.Kvs[0].Value), `"label":"nightly run"`)
	unlock(t, h)
}

// What is done for one hold in the context of another, which ends in between because that other is lost.
func TestALossElsewhereIsNoLossHere(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	term := lead(t, candidate(t, cluster), "a")
	writer := lock(t, etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "mine"))
	for name, call := range map[string]func(context.Context) error{
		"proclaim":  func(ctx context.Context) error { return term.Proclaim(ctx, "b") },
		"transfer":  func(ctx context.Context) error { return term.Transfer(ctx, "b") },
		"downgrade": writer.Downgrade,
		"ensure":    func(ctx context.Context) error { return writer.Ensure(ctx, longTTL) },
	} {
		var faults []*embedtest.Fault
		bitten := make(chan struct{}, 10)
		for _, method := range []string{"Range", "Txn", "LeaseKeepAlive"} {
			faults = append(faults, cluster.Hold(method, embedtest.When(func(any) bool { bitten <- struct{}{}; return true })))
		}
		ctx, cancel := context.WithCancelCause(within(t))
		called := make(chan error, 1)
		go func() { called <- call(ctx) }()
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
	type held interface {
		Key() string
		Context() context.Context
	}
	for name, begin := range map[string]func(*testing.T, *embedtest.Cluster) (held, func(context.Context) error){
		"ensure": func(t *testing.T, cluster *embedtest.Cluster) (held, func(context.Context) error) {
			h := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
			return h, func(ctx context.Context) error { return h.Ensure(ctx, longTTL) }
		},
		"proclaim": func(t *testing.T, cluster *embedtest.Cluster) (held, func(context.Context) error) {
			term := lead(t, candidate(t, cluster), "a")
			return term, func(ctx context.Context) error { return term.Proclaim(ctx, "b") }
		},
		"downgrade": func(t *testing.T, cluster *embedtest.Cluster) (held, func(context.Context) error) {
			h := lock(t, etcdlock.NewRWMutex(newSession(t, cluster.Client(t)), "orders"))
			return h, h.Downgrade
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			h, call := begin(t, cluster)
			write, renewal := cluster.Hold("Txn", embedtest.When(putting)), cluster.Hold("LeaseKeepAlive")
			called := make(chan error, 1)
			go func() { called <- call(h.Context()) }()
			require.Eventually(t, func() bool { return write.Bites()+renewal.Bites() > 0 }, patience, time.Millisecond)
			remove(t, cluster.Client(t), h.Key())
			require.ErrorIs(t, await(t, name, called), etcdlock.ErrLost)
		})
	}
}
