package coord_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// All parties go on together, again and again, and know which opening it was.
func TestPartiesGoOnTogetherAgainAndAgain(t *testing.T) {
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
	cluster, client := start(t)
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
}

func TestDifferentNumbersOfPartiesAreAnErrorThatNamesBoth(t *testing.T) {
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

// The party that comes last opens the barrier, but an answer is lost.
func TestLostAnswersDelayAnOpeningAndDoNotPreventIt(t *testing.T) {
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
