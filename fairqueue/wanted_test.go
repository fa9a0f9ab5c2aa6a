package fairqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func TestWantedTellsOfWhoJoinsAndOfTheLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket)
		want    error
	}{
		"exclusive": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) {
			join(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
		}, nil},
		"shared": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) {
			join(t, fairqueue.New(open(t, client), "q"), fairqueue.Shared)
		}, nil},
		"of the same session": {func(t *testing.T, _ *clientv3.Client, own *fairqueue.Ticket) {
			join(t, fairqueue.New(own.Session(), "q"), fairqueue.Exclusive)
		}, nil},
		"of another kind": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) {
			put(t, client, "q/694d")
		}, nil},
		"the key is gone": {func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) {
			remove(t, client, own.Key())
		}, fairqueue.ErrGone},
		"the lease is gone": {func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) {
			revoke(t, client, own.Session())
		}, session.ErrLost},
	} {
		for when, before := range map[string]bool{"while it watches": false, "before it watches": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				c, client := begin(t)
				own := hold(t, fairqueue.New(open(t, client), "q", fairqueue.WithRecheck(never)), fairqueue.Exclusive)
				watches := spyOnWatches(c)
				if before {
					tt.happens(t, client, own)
				}
				told := background(t, func() error { return own.Wanted(within(t, patience)) })
				if !before {
					watches.await(t, 1)
					requireWaiting(t, told)
					tt.happens(t, client, own)
				}
				require.ErrorIs(t, result(t, told), tt.want)
			})
		}
	}
}

func TestWantedIsNotDisturbedByWhatNobodyWants(t *testing.T) {
	c, client := begin(t)
	own := hold(t, fairqueue.New(open(t, client), "q", fairqueue.WithRecheck(100*time.Millisecond)), fairqueue.Exclusive)
	watches := spyOnWatches(c)
	ctx, cancel := context.WithCancel(within(t, patience))
	told := background(t, func() error { return own.Wanted(ctx) })
	watches.await(t, 1)
	put(t, client, "q/below/694d")                                     // another queue
	require.NoError(t, own.Set(within(t, patience), "{}"))             // its own value
	join(t, fairqueue.New(open(t, client), "qq"), fairqueue.Exclusive) // not in it
	_, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	watches.await(t, 4) // it has looked since
	requireWaiting(t, told)
	c.SwallowWatchEvents()
	join(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	require.NoError(t, result(t, told), "although the watch did not tell")
	cancel()
	require.ErrorIs(t, own.Wanted(ctx), context.Canceled)
}

// They may be many, below a raw prefix.
func TestKeysOfOtherQueuesAreNoCompanyAndNoProof(t *testing.T) {
	_, client := begin(t)
	own := hold(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	putMany(t, client, "q/below")
	alone, err := own.Alone(within(t, patience))
	require.NoError(t, err)
	require.True(t, alone)
	other := join(t, fairqueue.New(open(t, client), "q"), fairqueue.Exclusive)
	alone, err = own.Alone(within(t, patience))
	require.NoError(t, err)
	require.False(t, alone)
	require.NoError(t, own.Wanted(within(t, patience)))
	leave(t, other)
	remove(t, client, own.Key())
	_, err = own.Alone(within(t, patience))
	require.ErrorIs(t, err, fairqueue.ErrGone)
	require.ErrorIs(t, own.Wanted(within(t, patience)), fairqueue.ErrGone)
}
