package coord_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
)

func TestALatchOpensWithTheLastArrivalAndStaysOpen(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	const arrivals = 3
	latch := func() *coord.Latch { return coord.NewLatch(keep(t, client), "ready", arrivals) }
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() { require.NoError(t, latch().Wait(ctx)) })
	}
	l := latch()
	for i, id := range []string{"c", "a/b", "c", "c"} { // one of them again and again
		require.NoError(t, l.Arrive(ctx, id))
		ids, err := l.Arrived(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"c", "a/b"}[:min(i+1, 2)], ids)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Wait(short), context.DeadlineExceeded)

	require.NoError(t, l.Arrive(ctx, "!"))
	waiting.Wait()
	require.NoError(t, l.Arrive(ctx, "one more"))
	require.NoError(t, latch().Wait(ctx))

	require.NoError(t, l.Reset(ctx))
	requireEmpty(t, client)
	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Wait(short), context.DeadlineExceeded)
	require.NoError(t, coord.NewLatch(keep(t, client), "ready", 1).Arrive(ctx, "x")) // another number, after Reset
}

func TestArrivalsOutliveTheirProcess(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	k := keep(t, client)
	require.NoError(t, coord.NewLatch(k, "x", 1).Arrive(ctx, "id"))
	_, ok := k.Current()
	require.False(t, ok, "a session was created")
	require.NoError(t, k.Close(ctx))
	require.NoError(t, coord.NewLatch(keep(t, client), "x", 1).Wait(ctx))
}

func TestDifferentNumbersOfArrivalsAreAnErrorThatNamesBoth(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	k := keep(t, client)
	require.NoError(t, coord.NewLatch(k, "x", 20).Arrive(ctx, "first id"))
	other := coord.NewLatch(k, "x", 2)
	for _, err := range []error{other.Arrive(ctx, "second"), other.Wait(ctx)} {
		var wrong *coord.CountError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, 2, wrong.Count)
		require.Equal(t, 20, wrong.Declared)
		require.Equal(t, "first id", wrong.Other)
		require.ErrorContains(t, err, `declared 2 arrivals, but "first id", which was there before, 20`)
	}
	ids, err := other.Arrived(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"first id"}, ids)
}

func TestAnArrivalWithALostAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	l := coord.NewLatch(keep(t, client), "x", 3)
	for i := range 2 {
		loseOneReply(t, cluster)
		require.NoError(t, l.Arrive(ctx, fmt.Sprint(i)))
	}
	ids, err := l.Arrived(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1"}, ids)
}

func TestAKeyThatIsNoLatchIsAnError(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	_, err := client.Put(ctx, "etcdlock/x!/latch/count", "many")
	require.NoError(t, err)
	l := coord.NewLatch(keep(t, client), "x", 3)
	require.ErrorContains(t, l.Arrive(ctx, "id"), `"etcdlock/x!/latch/count"`)
	require.ErrorContains(t, l.Wait(ctx), `"etcdlock/x!/latch/count"`)
}

// What waits or observes without a session ends when the client is closed, with the error of a wait for a lock.
func TestWaitsEndWithErrLostIfTheClientIsClosed(t *testing.T) {
	t.Parallel()
	cluster, _ := start(t)
	ctx := limited(t)
	client, err := cluster.NewClient()
	require.NoError(t, err)
	k := keep(t, client)
	ended := make(chan error, 4)
	go func() { ended <- coord.NewLatch(k, "x", 1).Wait(ctx) }()
	go func() {
		_, err := coord.NewBarrier(k, "x", 2).Await(ctx)
		ended <- err
	}()
	go func() {
		var last error
		for _, last = range coord.NewGroup(k, "x").Observe(ctx) {
		}
		ended <- last
	}()
	go func() {
		var last error
		for _, last = range coord.NewShards(k, "x", 1).Observe(ctx) {
		}
		ended <- last
	}()
	requireWaiting(t, cluster.Client(t), "etcdlock/x!/barrier/line/", 1)
	require.NoError(t, client.Close())
	for range cap(ended) {
		err := <-ended
		require.ErrorIs(t, err, etcdlock.ErrLost)
		require.ErrorContains(t, err, "the client was closed")
		var e *etcdlock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "x", e.Name)
	}
	require.ErrorIs(t, coord.NewLatch(k, "x", 1).Wait(ctx), etcdlock.ErrLost)
	_, err = coord.NewGroup(k, "x").Members(ctx)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	_, _, err = coord.NewOnce(k, "x").Done(ctx)
	require.ErrorIs(t, err, etcdlock.ErrLost)
}

// requireWaiting waits until there are so many keys with the prefix.
func requireWaiting(t testing.TB, client *clientv3.Client, prefix string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := client.Get(limited(t), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && answer.Count == n
	}, patience, 10*time.Millisecond)
}
