package fairqueue_test

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
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func lost(t *testing.T, ctx context.Context, ticket *fairqueue.Ticket) <-chan error {
	return background(t, func() error { return ticket.Lost(ctx) })
}

// The watch tells, with neither a look without a reason nor a renewal.
func TestLostAndWantedTellWhatBecomesOfTheTicket(t *testing.T) {
	type happens = func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket)
	joins := func(m fairqueue.Mode) happens {
		return func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) { join(t, newQueue(t, client), m) }
	}
	for name, tt := range map[string]struct {
		happens happens
		lost    bool // or another ticket has come
	}{
		"it is deleted": {func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) { remove(t, client, own.Key()) }, true},
		"it is born again": {func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) {
			remove(t, client, own.Key())
			put(t, client, own.Key())
		}, true},
		"its lease is revoked": {func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) { revoke(t, client, own.Session()) }, true},
		"an exclusive one":     {joins(fairqueue.Exclusive), false},
		"a shared one":         {joins(fairqueue.Shared), false},
		"one of its session": {func(t *testing.T, _ *clientv3.Client, own *fairqueue.Ticket) {
			join(t, queueAt(own.Session(), "q"), fairqueue.Exclusive)
		}, false},
		"one of another kind": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) { put(t, client, "q/694d") }, false},
	} {
		for when, before := range map[string]bool{"while it watches": false, "before it watches": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				c, client, q := beginQueue(t)
				own := hold(t, q, fairqueue.Exclusive)
				watches := spyOnWatches(c)
				watch := func() (told []<-chan error) {
					if tt.lost {
						told = append(told, lost(t, within(t, patience), own))
					}
					return append(told, background(t, func() error { return own.Wanted(within(t, patience)) }))
				}
				var told []<-chan error
				if !before {
					told = watch()
					watches.await(t, len(told))
				}
				for _, of := range told {
					requireWaiting(t, of)
				}
				tt.happens(t, client, own)
				if before {
					told = watch()
				}
				for _, of := range told {
					if err := result(t, of); tt.lost {
						require.ErrorIs(t, err, session.ErrLost)
					} else {
						require.NoError(t, err)
					}
				}
			})
		}
	}
}

func TestLostEndsWithItsContextOrSession(t *testing.T) {
	_, _, q := beginQueue(t)
	ticket := hold(t, q, fairqueue.Exclusive)
	ctx, cancel := context.WithCancel(within(t, patience))
	first, second := lost(t, ctx, ticket), lost(t, within(t, patience), ticket)
	cancel()
	require.ErrorIs(t, result(t, first), context.Canceled)
	requireWaiting(t, second)
	require.NoError(t, ticket.Session().Close(within(t, patience)))
	require.ErrorIs(t, result(t, second), session.ErrClosed)
}

func TestLostReportsThatItMayNotLook(t *testing.T) {
	c, client := begin(t)
	ticket := hold(t, newQueue(t, client), fairqueue.Exclusive)
	put(t, client, "elsewhere") // so that there is a reason to look
	fault := c.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	told := result(t, lost(t, within(t, patience), ticket))
	require.ErrorIs(t, told, rpctypes.ErrPermissionDenied)
	require.NotErrorIs(t, told, session.ErrLost)
	fault.Heal()

	// The same for a look without a reason.
	ticket = hold(t, fairqueue.New(ticket.Session(), "other", fairqueue.Options{Recheck: 20 * time.Millisecond}), fairqueue.Exclusive)
	watches := spyOnWatches(c)
	again := lost(t, within(t, patience), ticket)
	watches.await(t, 2)
	c.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	require.ErrorIs(t, result(t, again), rpctypes.ErrPermissionDenied)
}

func TestWantedIsNotDisturbedByWhatNobodyWants(t *testing.T) {
	c, client := begin(t)
	own := hold(t, fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 100 * time.Millisecond}), fairqueue.Exclusive)
	watches := spyOnWatches(c)
	ctx, cancel := context.WithCancel(within(t, patience))
	told := background(t, func() error { return own.Wanted(ctx) })
	watches.await(t, 1)
	put(t, client, "q/below/694d")                               // another queue
	require.NoError(t, own.Set(within(t, patience), "{}"))       // its own value
	join(t, queueAt(open(t, client), "qq"), fairqueue.Exclusive) // not in it
	_, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	watches.await(t, 4) // it has looked since
	requireWaiting(t, told)
	c.SwallowWatchEvents()
	join(t, newQueue(t, client), fairqueue.Exclusive)
	require.NoError(t, result(t, told), "although the watch did not tell")
	cancel()
	require.ErrorIs(t, own.Wanted(ctx), context.Canceled)
}

// They may be many, below a raw prefix.
func TestKeysOfOtherQueuesAreNoCompanyAndNoProof(t *testing.T) {
	_, client := begin(t)
	own := hold(t, newQueue(t, client), fairqueue.Exclusive)
	putMany(t, client, "q/below")
	alone, err := own.Alone(within(t, patience))
	require.NoError(t, err)
	require.True(t, alone)
	other := join(t, newQueue(t, client), fairqueue.Exclusive)
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

// Candidates may have values of a megabyte, and thousands of waiters may time out together.
func TestAheadReadsTheValueOfTheOwnerOnly(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	owner := joinCandidate(t, s, "the owner's", 0)
	for range 5 {
		joinCandidate(t, s, "a waiter's", 0)
	}
	last := join(t, queueAt(s, "q"), fairqueue.Exclusive)
	values := spyOnRequests(c, "Range", func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && !r.KeysOnly && len(r.RangeEnd) > 0
	})
	e, ahead, ok := last.Ahead(within(t, patience))
	require.True(t, ok)
	require.Equal(t, 6, ahead)
	require.Equal(t, owner.Key(), e.Key)
	require.Equal(t, owner.Session().Lease(), e.Lease)
	require.Equal(t, "the owner's", string(e.Value))
	require.Zero(t, values.seen(), "reads of all values")
}

// The owner may leave between the two reads.
func TestAheadTellsOfOneMoment(t *testing.T) {
	c, _, q := beginQueue(t)
	owner, last := hold(t, q, fairqueue.Exclusive), join(t, q, fairqueue.Exclusive)
	read := c.Hold("Range", embedtest.Once(), embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && string(r.Key) == owner.Key()
	}))
	require.NoError(t, during(t, read, func() error {
		e, ahead, ok := last.Ahead(within(t, patience))
		if !ok || ahead != 1 || e.Key != owner.Key() {
			return fmt.Errorf("%q, %d, %v", e.Key, ahead, ok)
		}
		return nil
	}, func() { leave(t, owner) }))
	_, _, ok := last.Ahead(within(t, patience))
	require.False(t, ok, "free by now")
}

// Nor does it keep anybody waiting.
func TestAheadDoesNotTellWhatItCannot(t *testing.T) {
	c, client, q := beginQueue(t)
	hold(t, q, fairqueue.Exclusive)
	ticket := join(t, q, fairqueue.Exclusive)
	fault := c.LoseRequest("Range")
	givesUp(t, fault, func(ctx context.Context) error {
		if _, _, ok := ticket.Ahead(ctx); ok {
			return errors.New("out of nothing")
		}
		return ctx.Err()
	})
	fault.Heal()
	for i := range 9 {
		putMany(t, client, fmt.Sprint("q/y", i)) // of other queues, but they are read, after the tickets
	}
	_, _, ok := ticket.Ahead(within(t, patience))
	require.False(t, ok, "too long")
}
