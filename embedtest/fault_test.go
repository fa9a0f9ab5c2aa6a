package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

func isTo(key string) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		request, ok := message.(*etcdserverpb.PutRequest)
		return ok && string(request.Key) == key
	})
}

// later runs a put and returns the channel on which its error comes.
func later(ctx context.Context, client *clientv3.Client, key, value string) <-chan error {
	answered := make(chan error, 1)
	go func() {
		_, err := client.Put(ctx, key, value)
		answered <- err
	}()
	return answered
}

func TestLostRequestIsNotApplied(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	fault := c.LoseRequest("Put")
	_, err := client.Put(within(t, short), "k", "v")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, fault.Wait(within(t, patience)))
	require.Equal(t, 1, fault.Bites())
	require.Empty(t, get(t, client, "k"))
	fault.Heal()
	fault.Heal()
	put(t, client, "k", "w")
	require.Equal(t, 1, fault.Bites())
}

func TestLostReplyIsApplied(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	fault := c.LoseReply("Put")
	_, err := client.Put(within(t, short), "k", "v")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, fault.Wait(within(t, patience)))
	require.Equal(t, "v", get(t, client, "k"))
	fault.Heal()
	put(t, client, "k", "w")
}

func TestBittenComesAfterTheRequestWasApplied(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	for range 50 {
		fault := c.LoseReply("Put", embedtest.Once())
		before := c.AppliedIndex()
		ctx, cancel := context.WithCancel(within(t, patience))
		answered := later(ctx, client, "k", "v")
		<-fault.Bitten()
		require.Equal(t, before+1, c.AppliedIndex())
		cancel()
		require.Error(t, <-answered)
	}
}

func TestLostReplyLetsErrorsPass(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	fault := c.LoseReply("LeaseRevoke", embedtest.Once())
	_, err := client.Revoke(within(t, patience), 42)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	require.Zero(t, fault.Bites())
	lease, err := client.Grant(within(t, patience), 60)
	require.NoError(t, err)
	_, err = client.Revoke(within(t, short), lease.ID)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, fault.Bites())
}

func TestHealAnswersWhatWasSilenced(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	for _, lose := range []func(string, ...embedtest.FaultOption) *embedtest.Fault{c.LoseRequest, c.LoseReply} {
		fault := lose("Put")
		answered := later(within(t, patience), client, "k", "v")
		<-fault.Bitten()
		fault.Heal()
		require.ErrorContains(t, <-answered, "Unavailable")
	}
}

func TestHeldRequestIsAppliedAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	for i := range 20 { // a request that its caller has cancelled is applied at times anyway
		key := fmt.Sprint(i)
		fault := c.Hold("Put", embedtest.Once())
		ctx, cancel := context.WithCancel(within(t, patience))
		answered := later(ctx, client, key, "late")
		<-fault.Bitten()
		cancel()
		require.ErrorIs(t, <-answered, context.Canceled)
		require.Empty(t, get(t, client, key))
		fault.Heal()
		require.Eventually(t, func() bool { return get(t, client, key) == "late" }, patience, time.Millisecond)
	}
}

func TestDelayedRequestTakesLonger(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	c := embedtest.Start(t)
	client := c.Client(t)
	put(t, client, "k", "v")
	fault := c.Delay("Put", delay)
	begin := time.Now()
	put(t, client, "k", "w")
	require.GreaterOrEqual(t, time.Since(begin), delay)
	fault.Heal()

	endless := c.Delay("Put", time.Hour)
	answered := later(within(t, patience), client, "k", "x")
	<-endless.Bitten()
	require.Equal(t, "w", get(t, client, "k"))
	endless.Heal()
	require.NoError(t, <-answered)
	require.Equal(t, "x", get(t, client, "k"))
}

func TestRefusedRequestIsAnsweredWithTheError(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	for _, want := range []error{rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied} {
		fault := c.Refuse("Put", want)
		_, err := client.Put(within(t, patience), "k", "v")
		require.ErrorIs(t, err, want)
		require.Equal(t, 1, fault.Bites())
		fault.Heal()
		require.Empty(t, get(t, client, "k"))
	}
	c.Refuse("Put", errors.New("of a kind of its own"), embedtest.Once())
	_, err := client.Put(within(t, patience), "k", "v")
	require.ErrorContains(t, err, "of a kind of its own")
	put(t, client, "k", "v")
}

func TestFaultBitesAsOftenAsTold(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	fault := c.Refuse("Put", rpctypes.ErrTooManyRequests, embedtest.Times(2))
	for range 2 {
		_, err := client.Put(within(t, patience), "k", "v")
		require.ErrorIs(t, err, rpctypes.ErrTooManyRequests)
	}
	put(t, client, "k", "v")
	require.Equal(t, 2, fault.Bites())
}

func TestFaultBitesOnlyWhatFits(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	c.Refuse("Put", rpctypes.ErrTooManyRequests, isTo("a"))
	put(t, client, "b", "v")
	_, err := client.Put(within(t, patience), "a", "v")
	require.ErrorIs(t, err, rpctypes.ErrTooManyRequests)
	_, err = client.Delete(within(t, patience), "a")
	require.NoError(t, err)
}

func TestFaultBitesOnlyThatMemberAndSurvivesItsRestart(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithSize(3))
	m := c.Members()
	c.Refuse("Put", rpctypes.ErrTooManyRequests, embedtest.On(m[1]))
	require.NoError(t, m[1].Restart())
	put(t, m[0].Client(t), "k", "v")
	_, err := m[1].Client(t).Put(within(t, patience), "k", "v")
	require.ErrorIs(t, err, rpctypes.ErrTooManyRequests)
}

func TestUnknownMethodIsRefused(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	require.Panics(t, func() { c.LoseRequest("Pot") })
	require.Panics(t, func() { c.Calls("Pot") })
}

func TestDroppedKeepAliveRenewsTheLease(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	lease, err := client.Grant(within(t, patience), 60)
	require.NoError(t, err)
	fault := c.DropKeepAlives()
	before := c.Calls("LeaseKeepAlive")
	_, err = client.KeepAliveOnce(within(t, short), lease.ID)
	require.Error(t, err)
	require.NoError(t, fault.Wait(within(t, patience)))
	require.Equal(t, before+1, c.Calls("LeaseKeepAlive"))
	fault.Heal()
	_, err = client.KeepAliveOnce(within(t, patience), lease.ID)
	require.NoError(t, err)
}

func TestLostKeepAliveDoesNotReachTheLease(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	lease, err := client.Grant(within(t, patience), 1)
	require.NoError(t, err)
	c.LoseRequest("LeaseKeepAlive")
	renewing, err := client.KeepAlive(within(t, patience), lease.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		left, err := client.TimeToLive(within(t, patience), lease.ID)
		return err == nil && left.TTL < 0
	}, patience, 10*time.Millisecond)
	for answer := range renewing {
		require.Fail(t, "renewed", "%v", answer)
	}
}

func TestSwallowedEventsNeverArrive(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	fault := c.SwallowWatchEvents(embedtest.Once())
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	require.True(t, (<-watch).Created)
	put(t, client, "k", "swallowed")
	require.NoError(t, fault.Wait(within(t, patience)))
	put(t, client, "k", "seen")
	require.Equal(t, "seen", string((<-watch).Events[0].Kv.Value))
	fault.Heal()
}

func TestHeldAnswersOfAStreamArriveInOrder(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	<-watch
	fault := c.Hold("Watch", embedtest.Once())
	put(t, client, "k", "1")
	<-fault.Bitten()
	put(t, client, "k", "2")
	put(t, client, "k", "3")
	select {
	case answer := <-watch:
		require.Fail(t, "overtook a held answer", "%v", answer)
	default:
	}
	fault.Heal()
	for seen := 0; seen < 3; {
		for _, event := range (<-watch).Events {
			seen++
			require.Equal(t, string('0'+rune(seen)), string(event.Kv.Value))
		}
	}
}

func TestDelayedAnswersOfAStreamDoNotAddUp(t *testing.T) {
	t.Parallel()
	const delay, events = 50 * time.Millisecond, 40
	c := embedtest.Start(t)
	client := c.Client(t)
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	<-watch
	fault := c.Delay("Watch", delay)
	begin := time.Now()
	for range events {
		put(t, client, "k", "v")
	}
	for seen := 0; seen < events; {
		seen += len((<-watch).Events)
	}
	require.GreaterOrEqual(t, time.Since(begin), delay)
	require.Positive(t, fault.Bites())
	if fault.Bites() > events/2 {
		require.Less(t, time.Since(begin), events*delay)
	}
}

func TestRefusedStreamEnds(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	c.Refuse("Watch", rpctypes.ErrPermissionDenied, embedtest.Once())
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	answer := <-watch
	require.ErrorIs(t, answer.Err(), rpctypes.ErrPermissionDenied)
	// A client of its own: the first may still be busy with the end of its stream.
	watch = c.Client(t).Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	again := <-watch
	require.NoError(t, again.Err())
	require.True(t, again.Created)
}

func TestCallsCountsRequests(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	put(t, client, "k", "v")
	get(t, client, "k")
	get(t, client, "k")
	require.EqualValues(t, 1, c.Calls("Put"))
	require.EqualValues(t, 2, c.Calls("Range"))
	require.Zero(t, c.Calls("Txn"))
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	fault := embedtest.Start(t).LoseRequest("Put")
	require.ErrorIs(t, fault.Wait(within(t, time.Millisecond)), context.DeadlineExceeded)
}
