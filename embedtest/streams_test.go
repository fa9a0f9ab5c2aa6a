package embedtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/embedtest"
)

// comesTo waits until count returns want.
func comesTo(t *testing.T, want int64, count func() int64) {
	t.Helper()
	ctx := within(t, patience)
	for count() != want {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			require.Equal(t, want, count())
		}
	}
}

func TestOpenStreamsAreCountedByMethod(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	open := func() int64 { return c.OpenStreams("Watch") }
	client := c.Client(t)
	var ends []context.CancelFunc
	for _, id := range []string{"", "", "a", "b"} { // a client opens a stream for each metadata
		ctx, end := context.WithCancel(within(t, patience))
		ends = append(ends, end)
		if id != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "request-id", id)
		}
		<-client.Watch(ctx, "k", clientv3.WithCreatedNotify())
	}
	require.EqualValues(t, 3, open())
	require.EqualValues(t, 4, c.Calls("Watch"))
	require.Zero(t, c.OpenStreams("LeaseKeepAlive"))

	ends[2]()
	comesTo(t, 2, open)
	require.NoError(t, client.Close())
	comesTo(t, 0, open)
	require.EqualValues(t, 3, c.StreamsOpened("Watch"))
}

func TestStreamsOfAKilledMemberAreGone(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	lease, err := client.Grant(within(t, patience), 60)
	require.NoError(t, err)
	_, err = client.KeepAlive(within(t, patience), lease.ID)
	require.NoError(t, err)
	comesTo(t, 1, func() int64 { return c.OpenStreams("LeaseKeepAlive") })
	c.Members()[0].Kill()
	require.Zero(t, c.OpenStreams("LeaseKeepAlive"))
}

func TestARequestUnderWayCountsAsAStream(t *testing.T) {
	c := embedtest.Start(t)
	held := c.Hold("Put")
	answered := later(within(t, patience), c.Client(t), "k", "v")
	require.NoError(t, held.Wait(within(t, patience)))
	require.EqualValues(t, 1, c.OpenStreams("Put"))
	held.Heal()
	require.NoError(t, <-answered)
	comesTo(t, 0, func() int64 { return c.OpenStreams("Put") })
}

func TestAConnectionHasNoMoreStreamsThanConfigured(t *testing.T) {
	for _, limit := range []uint32{1, 2, 8} {
		c := embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxConcurrentStreams = limit }))
		client := c.Client(t)
		put(t, client, "k", "v") // the limit has arrived
		var end context.CancelFunc
		for range limit {
			var ctx context.Context
			ctx, end = context.WithCancel(within(t, patience))
			stream := clientv3.NewWatcher(client)
			t.Cleanup(func() { _ = stream.Close() })
			<-stream.Watch(ctx, "k", clientv3.WithCreatedNotify())
		}
		_, err := client.Get(within(t, short), "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, limit, c.OpenStreams("Watch"))
		require.Zero(t, c.Calls("Range"))
		require.Equal(t, "v", get(t, c.Client(t), "k")) // on another connection

		end()
		require.Equal(t, "v", get(t, client, "k"))
	}
}

func TestConfigurationHoldsForEveryRunOfAMember(t *testing.T) {
	c := embedtest.Start(t,
		embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps, cfg.Name, cfg.Dir = 1, "mine", "/nowhere" }),
		embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps++ }),
	)
	client := c.Client(t)
	for range 2 {
		require.NoError(t, c.Members()[0].Restart())
		write := clientv3.OpPut("a", "v")
		_, err := client.Txn(within(t, patience)).Then(write, clientv3.OpPut("b", "v"), clientv3.OpPut("c", "v")).Commit()
		require.ErrorContains(t, err, "too many operations")
		_, err = client.Txn(within(t, patience)).Then(write, clientv3.OpPut("b", "v")).Commit()
		require.NoError(t, err)
	}
	require.Equal(t, "m0", c.Members()[0].Server().Cfg.Name)
}

func TestAConfigurationThatEtcdRefusesIsAnError(t *testing.T) {
	_, err := embedtest.Open(embedtest.WithConfig(func(cfg *embed.Config) { cfg.AutoCompactionMode = "sometimes" }))
	require.ErrorContains(t, err, "sometimes")
}
