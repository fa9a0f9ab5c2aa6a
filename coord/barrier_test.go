package coord_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// All parties go on together, again and again, and know which opening it was.
func TestPartiesGoOnTogetherAgainAndAgain(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	const parties, rounds = 5, 8
	var mu sync.Mutex
	arrived := make([]int, rounds)
	generations := make([]map[int64]int, rounds)
	var running sync.WaitGroup
	for range parties {
		k := keep(t, client)
		running.Go(func() {
			b := coord.NewBarrier(k, "phase", parties)
			for round := range rounds {
				mu.Lock()
				arrived[round]++
				mu.Unlock()
				generation, err := b.Await(ctx)
				require.NoError(t, err)
				mu.Lock()
				require.Equal(t, parties, arrived[round], "a party went on before the last one came")
				if generations[round] == nil {
					generations[round] = make(map[int64]int)
				}
				generations[round][generation]++
				mu.Unlock()
			}
		})
	}
	running.Wait()
	last := int64(0)
	for _, g := range generations {
		require.Len(t, g, 1)
		for generation, n := range g {
			require.Equal(t, parties, n)
			require.Greater(t, generation, last)
			last = generation
		}
	}
	requireEmpty(t, client)
}

// Of seven parties at a barrier for three, six go on, in the order in which they came.
func TestMorePartiesThanAreNeededWaitForTheNextOpening(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	k := keep(t, client)
	b := coord.NewBarrier(k, "x", 3)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	generations := make(map[int64]int)
	var ended int
	var running sync.WaitGroup
	for range 7 {
		running.Go(func() {
			generation, err := b.Await(waiting)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				ended++
				return
			}
			if generations[generation]++; len(generations) == 2 && ended == 0 {
				n := 0
				for _, parties := range generations {
					n += parties
				}
				if n == 6 {
					stop()
				}
			}
		})
	}
	running.Wait()
	require.Len(t, generations, 2)
	for _, n := range generations {
		require.Equal(t, 3, n)
	}
	require.Equal(t, 1, ended)
}

func TestAPartyThatDiesOrGivesUpDoesNotCount(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		cut, link := cluster.Link(t)
		dying := keep(t, cut, session.WithTTL(2*time.Second))
		died := make(chan error, 2)
		go func() {
			_, err := coord.NewBarrier(dying, "x", 3).Await(ctx)
			died <- err
		}()
		k := keep(t, client)
		b := coord.NewBarrier(k, "x", 3)
		givingUp, giveUp := context.WithCancel(ctx)
		go func() {
			_, err := b.Await(givingUp)
			died <- err
		}()
		requireWaiting(t, client, "etcdlock/x!/barrier/line/", 2)
		link.Blackhole()
		giveUp()
		for range 2 {
			err := <-died
			require.Error(t, err)
			if givingUp.Err() == nil {
				require.ErrorIs(t, err, etcdlock.ErrLost)
			}
		}
		link.Heal()
		requireWaiting(t, client, "etcdlock/x!/barrier/line/", 0)

		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				_, err := b.Await(ctx)
				require.NoError(t, err)
			})
		}
		requireWaiting(t, client, "etcdlock/x!/barrier/line/", 2)
		_, err := b.Await(ctx)
		require.NoError(t, err)
		running.Wait()
	})
}

func TestDifferentNumbersOfPartiesAreAnErrorThatNamesBoth(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx, stop := context.WithCancel(limited(t))
	k := keep(t, client)
	ended := make(chan error)
	go func() {
		_, err := coord.NewBarrier(k, "x", 20).Await(ctx)
		ended <- err
	}()
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	_, err := coord.NewBarrier(k, "x", 2).Await(ctx)
	var wrong *coord.CountError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, 2, wrong.Count)
	require.Equal(t, 20, wrong.Declared)
	require.ErrorContains(t, err, "declared 2 parties, but")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The others go on before a party with another number has looked at them.
func TestAPartyWithAnotherNumberDoesNotGoOnWithTheOthers(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	two, ended := coord.NewBarrier(keep(t, client), "x", 2), make(chan error, 2)
	await := func(b *coord.Barrier) {
		_, err := b.Await(ctx)
		ended <- err
	}
	go await(two)
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	look := cluster.Hold("Txn", embedtest.When(func(message any) bool {
		reads := message.(*etcdserverpb.TxnRequest).Success
		return string(reads[len(reads)-1].GetRequestRange().GetKey()) == "etcdlock/x!/barrier/open/5"
	}))
	waiting, stop := context.WithCancel(ctx)
	five := make(chan error)
	go func() {
		_, err := coord.NewBarrier(keep(t, client), "x", 5).Await(waiting)
		five <- err
	}()
	require.NoError(t, look.Wait(ctx))
	go await(two)
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	look.Heal()
	_, err := two.Await(ctx)
	require.ErrorAs(t, err, new(*coord.CountError))
	stop()
	require.ErrorIs(t, <-five, context.Canceled)
	// On a busy machine the one that gave up has no time to remove the openings. Any later party does.
	last := coord.NewBarrier(keep(t, client), "x", 1)
	require.Eventually(t, func() bool {
		_, _ = last.Await(ctx)
		left, err := client.Get(ctx, "etcdlock/x!/barrier/open/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && left.Count == 0
	}, patience, 10*time.Millisecond)
}

// The party that comes last opens the barrier, but an answer is lost.
func TestLostAnswersDelayAnOpeningAndDoNotPreventIt(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	k := keep(t, client)
	b := coord.NewBarrier(k, "x", 2)
	first := make(chan int64)
	go func() {
		generation, err := b.Await(ctx)
		if err != nil {
			generation = 0
		}
		first <- generation
	}()
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	loseOneReply(t, cluster)
	generation, err := b.Await(ctx)
	require.NoError(t, err)
	require.Equal(t, generation, <-first)
}

// A party gives up while its write of an opening is under way. It is late, and must not let the others go on, since the party does
// not stand there any more.
func TestALateOpeningByAPartyThatHasLeftHasNoEffect(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	b := coord.NewBarrier(keep(t, client), "x", 2)
	waiting, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := b.Await(waiting)
		ended <- err
	}()
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)

	late := cluster.Hold("Txn", embedtest.Once(), thatTouch("etcdlock/x!/barrier/open/2"))
	opening, giveUp := context.WithCancel(ctx)
	var leaving sync.WaitGroup
	leaving.Go(func() {
		_, err := coord.NewBarrier(keep(t, client), "x", 2).Await(opening)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.NoError(t, late.Wait(ctx))
	giveUp()
	leaving.Wait()
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	before := cluster.AppliedIndex()
	late.Heal()
	require.Eventually(t, func() bool { return cluster.AppliedIndex() > before }, patience, time.Millisecond)
	answer, err := client.Get(ctx, "etcdlock/x!/barrier/open/2")
	require.NoError(t, err)
	require.Empty(t, answer.Kvs, "the barrier was opened")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	requireEmpty(t, client)
}

// While a party that was let through does not leave, the openings after its own are remembered, but not more and more.
func TestOpeningsThatAreRememberedAreBounded(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	k := keep(t, client)
	slow, err := etcdlock.NewRWMutex(k, "line", etcdlock.WithNamespace("etcdlock/x!/barrier"), etcdlock.WithLabel("1")).RLock(ctx)
	require.NoError(t, err)
	many, err := json.Marshal(slices.Repeat([]int64{int64(slow.Token())}, 1000))
	require.NoError(t, err)
	_, err = client.Put(ctx, "etcdlock/x!/barrier/open/1", string(many))
	require.NoError(t, err)
	generation, err := coord.NewBarrier(k, "x", 1).Await(ctx)
	require.NoError(t, err)
	answer, err := client.Get(ctx, "etcdlock/x!/barrier/open/1")
	require.NoError(t, err)
	var ends []int64
	require.NoError(t, json.Unmarshal(answer.Kvs[0].Value, &ends))
	require.Len(t, ends, 1000)
	require.Equal(t, []int64{int64(slow.Token()), generation}, ends[998:])
	require.NoError(t, slow.Unlock(ctx))
}
