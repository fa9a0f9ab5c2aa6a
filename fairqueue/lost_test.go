package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
func TestLostTellsOfADeletion(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *clientv3.Client, *fairqueue.Ticket){
		"by a stranger": func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) { remove(t, client, own.Key()) },
		"and a rebirth": func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) {
			remove(t, client, own.Key())
			put(t, client, own.Key())
		},
		"with the lease": func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) { revoke(t, client, own.Session()) },
	} {
		for when, before := range map[string]bool{"while it watches": false, "before it watches": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				c, client := begin(t)
				ticket := hold(t, newQueue(t, client), fairqueue.Exclusive)
				watches := spyOnWatches(c)
				if before {
					end(t, client, ticket)
				}
				told := lost(t, within(t, patience), ticket)
				if !before {
					watches.await(t, 1)
					requireWaiting(t, told)
					end(t, client, ticket)
				}
				require.ErrorIs(t, result(t, told), session.ErrLost)
			})
		}
	}
}

func TestLostFindsADeletionThatTheWatchMissed(t *testing.T) {
	c, client := begin(t)
	ticket := hold(t, fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 100 * time.Millisecond}), fairqueue.Exclusive)
	watches := spyOnWatches(c)
	told := lost(t, within(t, patience), ticket)
	watches.await(t, 3) // it has looked twice
	requireWaiting(t, told)
	c.SwallowWatchEvents()
	remove(t, client, ticket.Key())
	require.ErrorIs(t, result(t, told), session.ErrLost)
}

// There is no false alarm, and a loss afterwards is noticed.
func TestLostIsNotDisturbedByWhatIsNoLoss(t *testing.T) {
	all := maps.Clone(troubles)
	all["compaction of what the watch resumes at"] = trouble{1, func(t *testing.T, c *embedtest.Cluster, link *embedtest.Link, _ *spy) func() {
		link.Cut()
		compact(t, c)
		link.Heal()
		return ended
	}}
	for name, tt := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, embedtest.WithSize(tt.size))
			theirs, link := c.Link(t)
			client := c.Client(t)
			ticket := hold(t, fairqueue.New(open(t, theirs), "q", fairqueue.Options{Recheck: 50 * time.Millisecond}), fairqueue.Exclusive)
			watches := spyOnWatches(c)
			told := lost(t, within(t, patience), ticket)
			watches.await(t, 1)
			over := tt.begin(t, c, link, watches)
			elsewhere(t, c)
			over()
			watches.await(t, watches.seen()+3) // it has looked, and watches again
			requireWaiting(t, told)
			require.Equal(t, ticket.Revision(), revisionOf(t, client, ticket.Key()))
			remove(t, client, ticket.Key())
			require.ErrorIs(t, result(t, told), session.ErrLost)
		})
	}
}

// Whether the key is there is answered by a member that is behind, so far that it has
// not heard of it.
func TestAnAnswerOlderThanTheTicketIsNoLoss(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithSize(3))
	client, good := c.Client(t), c.Members()[0].Client(t)
	q := newQueue(t, client)
	answerFromBehind := leaveBehind(t, c)
	ticket := hold(t, q, fairqueue.Exclusive)
	// So that there is a reason to look, on whichever member the watch will be: a
	// linearizable read makes the member catch up.
	put(t, good, "elsewhere")
	for _, m := range c.Members()[:2] {
		require.NotZero(t, revisionOf(t, m.Client(t), "elsewhere"))
	}
	answerFromBehind()
	quorum := spyOnRequests(c, "Range", func(message any) bool {
		r := message.(*etcdserverpb.RangeRequest)
		return string(r.Key) == ticket.Key() && !r.Serializable
	})
	told := lost(t, within(t, patience), ticket)
	quorum.await(t, 1)
	requireWaiting(t, told)
	remove(t, good, ticket.Key())
	require.ErrorIs(t, result(t, told), session.ErrLost)
}

func TestLostEndsWithItsContextOrSession(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	ticket := hold(t, queueAt(s, "q"), fairqueue.Exclusive)
	ctx, cancel := context.WithCancel(within(t, patience))
	first, second := lost(t, ctx, ticket), lost(t, within(t, patience), ticket)
	cancel()
	require.ErrorIs(t, result(t, first), context.Canceled)
	requireWaiting(t, second)
	require.NoError(t, s.Close(within(t, patience)))
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

func TestWantedTellsOfOtherTicketsAndOfTheLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket)
		want    error
	}{
		"exclusive": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) {
			join(t, newQueue(t, client), fairqueue.Exclusive)
		}, nil},
		"shared": {func(t *testing.T, client *clientv3.Client, _ *fairqueue.Ticket) {
			join(t, newQueue(t, client), fairqueue.Shared)
		}, nil},
		"of the same session": {func(t *testing.T, _ *clientv3.Client, own *fairqueue.Ticket) {
			join(t, queueAt(own.Session(), "q"), fairqueue.Exclusive)
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
				own := hold(t, newQueue(t, client), fairqueue.Exclusive)
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
	c, client := begin(t)
	owner := hold(t, newQueue(t, client), fairqueue.Exclusive)
	last := join(t, newQueue(t, client), fairqueue.Exclusive)
	read := c.Hold("Range", embedtest.Once(), embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && string(r.Key) == owner.Key()
	}))
	asked := background(t, func() error {
		e, ahead, ok := last.Ahead(within(t, patience))
		if !ok || ahead != 1 || e.Key != owner.Key() {
			return fmt.Errorf("%q, %d, %v", e.Key, ahead, ok)
		}
		return nil
	})
	require.NoError(t, read.Wait(within(t, patience)))
	leave(t, owner)
	read.Heal()
	require.NoError(t, result(t, asked))
	_, _, ok := last.Ahead(within(t, patience))
	require.False(t, ok, "free by now")
}

// Nor does it keep anybody waiting.
func TestAheadDoesNotTellWhatItCannot(t *testing.T) {
	c, client, q := beginQueue(t)
	hold(t, q, fairqueue.Exclusive)
	ticket := join(t, q, fairqueue.Exclusive)
	fault := c.LoseRequest("Range")
	ctx, cancel := context.WithCancel(within(t, patience))
	asked := background(t, func() error {
		if _, _, ok := ticket.Ahead(ctx); ok {
			return errors.New("out of nothing")
		}
		return nil
	})
	require.NoError(t, fault.Wait(within(t, patience)))
	cancel()
	require.NoError(t, result(t, asked))
	fault.Heal()
	for i := range 9 {
		putMany(t, client, "q/"+string(rune('a'+i))) // of other queues, but they are read
	}
	_, _, ok := ticket.Ahead(within(t, patience))
	require.False(t, ok, "too long")
}
