package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// outcome is a function for Do that counts its calls.
func outcome(calls *atomic.Int64, value string) func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
	return func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
		calls.Add(1)
		return coord.Outcome{Value: value, Writes: []clientv3.Op{clientv3.OpPut("written", value)}}, nil
	}
}

func TestWhatIsDoneOnceIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	o := coord.NewOnce(keep(t, client), "migrate")
	_, done, err := o.Done(ctx)
	require.NoError(t, err)
	require.False(t, done)

	var calls atomic.Int64
	for range 3 {
		value, err := o.Do(ctx, outcome(&calls, "a value\nof two lines\xff"))
		require.NoError(t, err)
		require.Equal(t, "a value\nof two lines\xff", value)
	}
	require.Equal(t, int64(1), calls.Load())
	value, done, err := coord.NewOnce(keep(t, client), "migrate").Done(ctx)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, "a value\nof two lines\xff", value)
	answer, err := client.Get(ctx, "written")
	require.NoError(t, err)
	require.Equal(t, int64(1), answer.Kvs[0].Version)

	require.NoError(t, o.Reset(ctx))
	_, done, err = o.Done(ctx)
	require.NoError(t, err)
	require.False(t, done)
	_, err = o.Do(ctx, outcome(&calls, "again"))
	require.NoError(t, err)
	require.Equal(t, int64(2), calls.Load())
	require.NoError(t, o.Reset(ctx))
	_, err = client.Delete(ctx, "written")
	require.NoError(t, err)
	requireEmpty(t, client)
}

// All wait while the first one works. None of them works, and none waits for the turn of those before it, of which one is silent.
func TestWaitersReturnWithTheValueOfTheFirst(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	const waiters = 50
	lines, workers := keep(t, client), keep(t, client)
	working, finish := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		_, err := coord.NewOnce(workers, "value").Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
			close(working)
			<-finish
			return coord.Outcome{Value: "calculated"}, nil
		})
		require.NoError(t, err)
	})
	<-working
	var calls atomic.Int64
	silent, link := cluster.Link(t)
	silence, end := context.WithCancel(ctx)
	defer end()
	running.Go(func() {
		_, err := coord.NewOnce(keep(t, silent, session.WithTTL(10*patience)), "value").Do(silence, outcome(&calls, "another"))
		require.ErrorIs(t, err, context.Canceled)
	})
	requireWaiting(t, client, "etcdlock/value!/once/lock/", 2)
	link.Blackhole()
	var waiting sync.WaitGroup
	for range waiters {
		waiting.Go(func() {
			value, err := coord.NewOnce(lines, "value").Do(ctx, outcome(&calls, "another"))
			require.NoError(t, err)
			require.Equal(t, "calculated", value)
		})
	}
	requireWaiting(t, client, "etcdlock/value!/once/lock/", waiters+2)
	close(finish)
	waiting.Wait()
	end()
	link.Heal()
	running.Wait()
	require.Zero(t, calls.Load())
}

func TestAMarkWithAnExpiryGoesByItself(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		o := coord.NewOnce(keep(t, client), "value", coord.WithExpiry(1500*time.Millisecond))
		var calls atomic.Int64
		for range 2 {
			_, err := o.Do(ctx, outcome(&calls, "x"))
			require.NoError(t, err)
		}
		require.Equal(t, int64(1), calls.Load())
		require.Eventually(t, func() bool {
			_, done, err := o.Done(ctx)
			return err == nil && !done
		}, patience, 50*time.Millisecond)
		_, err := o.Do(ctx, outcome(&calls, "x"))
		require.NoError(t, err)
		require.Equal(t, int64(2), calls.Load())
	})
}

func TestTheLongestExpiryIsNoShortOne(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx, calls := limited(t), atomic.Int64{}
	_, err := coord.NewOnce(keep(t, client), "x", coord.WithExpiry(math.MaxInt64)).Do(ctx, outcome(&calls, ""))
	require.NoError(t, err)
	mark, err := client.Get(ctx, "etcdlock/x!/once/done")
	require.NoError(t, err)
	lease, err := client.TimeToLive(ctx, clientv3.LeaseID(mark.Kvs[0].Lease))
	require.NoError(t, err)
	require.Greater(t, lease.GrantedTTL, int64(8_000_000_000))
}

func TestAFailureOfTheFunctionIsTriedByTheNext(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	o := coord.NewOnce(keep(t, client), "x")
	failure := errors.New("a failure")
	_, err := o.Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) { return coord.Outcome{}, failure })
	require.Equal(t, failure, err)

	inner := &etcdlock.Error{Op: "lock", Name: "of its own", Err: failure}
	_, err = o.Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) { return coord.Outcome{}, inner })
	require.Equal(t, inner, err)

	require.PanicsWithValue(t, "of the function", func() {
		_, _ = o.Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) { panic("of the function") })
	})
	_, err = o.Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
		return coord.Outcome{Value: strings.Repeat("x", 64<<10+1)}, nil
	})
	require.ErrorIs(t, err, etcdlock.ErrTooLarge)
	require.ErrorContains(t, err, "65537 bytes, at most 65536")

	var calls atomic.Int64
	_, err = o.Do(ctx, outcome(&calls, strings.Repeat("x", 64<<10)))
	require.NoError(t, err)
}

// The holder is cut off while it works. It may have done it, but it has not said so.
func TestALossBeforeTheMarkLeavesTheWorkToTheNext(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		cut, link := cluster.Link(t)
		lost := keep(t, cut, session.WithTTL(2*time.Second))
		var lateCalls atomic.Int64
		var running sync.WaitGroup
		defer running.Wait()
		working := make(chan struct{})
		running.Go(func() {
			defer link.Heal()
			_, err := coord.NewOnce(lost, "x").Do(ctx, func(ctx context.Context, h *etcdlock.Hold) (coord.Outcome, error) {
				close(working)
				link.Blackhole()
				<-ctx.Done()
				return outcome(&lateCalls, "late")(ctx, h)
			})
			require.ErrorIs(t, err, etcdlock.ErrLost)
		})
		<-working
		var calls atomic.Int64
		value, err := coord.NewOnce(keep(t, client), "x").Do(ctx, outcome(&calls, "in time"))
		require.NoError(t, err)
		require.Equal(t, "in time", value)
		running.Wait()
		answer, err := client.Get(ctx, "written")
		require.NoError(t, err)
		require.Equal(t, "in time", string(answer.Kvs[0].Value))
		require.Equal(t, int64(1), answer.Kvs[0].Version)
	})
}

// The mark is made, and the lock is lost before it is released. The work is done all the same.
func TestALossAfterTheMarkIsNoError(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	var losing sync.WaitGroup
	value, err := coord.NewOnce(keep(t, client), "x").Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
		release := cluster.Hold("Txn", embedtest.Once(), thatTouch("etcdlock/x!/once/lock/"))
		losing.Go(func() {
			defer release.Heal()
			require.NoError(t, release.Wait(limited(t)))
			_, err := client.Delete(limited(t), "etcdlock/x!/once/lock/", clientv3.WithPrefix())
			require.NoError(t, err)
		})
		return coord.Outcome{Value: "done"}, nil
	})
	losing.Wait()
	require.NoError(t, err)
	require.Equal(t, "done", value)
}

// The answers to transactions are lost now and then. A second attempt finds the mark of the first.
func TestALostAnswerMakesNoSecondMark(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx := limited(t)
	for i := range 3 {
		o := coord.NewOnce(keep(t, client), fmt.Sprint("x", i))
		var calls atomic.Int64
		value, err := o.Do(ctx, func(ctx context.Context, h *etcdlock.Hold) (coord.Outcome, error) {
			loseOneReply(t, cluster)
			calls.Add(1)
			return coord.Outcome{Value: "x", Writes: []clientv3.Op{clientv3.OpPut(fmt.Sprint("written", i), "")}}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "x", value)
		require.Equal(t, int64(1), calls.Load())
		answer, err := client.Get(ctx, fmt.Sprint("written", i))
		require.NoError(t, err)
		require.Equal(t, int64(1), answer.Kvs[0].Version)
	}
}

func TestAKeyThatIsNoMarkIsAnError(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	_, err := client.Put(ctx, "etcdlock/x!/once/done", "yes")
	require.NoError(t, err)
	var calls atomic.Int64
	_, err = coord.NewOnce(keep(t, client), "x").Do(ctx, outcome(&calls, ""))
	require.ErrorContains(t, err, `key "etcdlock/x!/once/done" has another value than that of a mark`)
	require.Zero(t, calls.Load())
}
