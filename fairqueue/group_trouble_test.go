package fairqueue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

func TestAGroupThatFindsAStrangersKeyLeavesNothing(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	g := joinAll(t, s, places(s, 3)...)
	theirs := keysUnder(t, client, "g")[1]
	leave(t, g)
	put(t, client, theirs)
	require.ErrorContains(t, errorOf(fairqueue.JoinN(within(t, patience), s, 3, places(s, 3)...)), theirs)
	require.Equal(t, []string{theirs}, keysUnder(t, client, "g"))
	// Its own names are in use no more, and that one is avoided.
	g = joinAll(t, s, places(s, 3)...)
	require.Len(t, keysUnder(t, client, "g"), 4)
	remove(t, client, theirs)
	require.NoError(t, g.Wait(within(t, patience)))
}

func TestACancelledWaitForAnyLeavesNothing(t *testing.T) {
	c, client := begin(t)
	s, other := open(t, client), open(t, client)
	joinAll(t, other, places(other, 3)...)
	g := joinN(t, s, 1, places(s, 3)...)
	ctx, cancel := context.WithCancel(within(t, patience))
	waiting := standingUntil(t, ctx, c, g)
	cancel()
	require.ErrorIs(t, result(t, waiting), context.Canceled)
	eventually(t, "its keys are gone", func() bool { return len(keysUnder(t, client, "g")) == 3 })
	require.NoError(t, g.Leave(within(t, patience)), "it has left")
}

func TestAGroupThatGivesUpAfterALostReplyLeavesNothing(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creatingAll(3)))
	givesUp(t, fault, func(ctx context.Context) error { return errorOf(fairqueue.JoinN(ctx, s, 3, places(s, 3)...)) })
	eventuallyEmpty(t, client, "g")
}

// Part of it was removed before the retry found the rest, which is given up for another
// try at all of them.
func TestAGroupOfWhichTheRetryFindsAPartIsJoinedAnew(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creatingAll(3)))
	var g *fairqueue.Ticket
	var first int64
	require.NoError(t, during(t, fault, func() (err error) {
		g, err = fairqueue.JoinN(within(t, patience), s, 3, places(s, 3)...)
		return err
	}, func() {
		keys := keysUnder(t, client, "g")
		first = revisionOf(t, client, keys[0])
		remove(t, client, keys[1])
	}))
	require.Greater(t, g.Revision(), first)
	require.NoError(t, g.Wait(within(t, patience)))
	eventually(t, "what was left is gone", func() bool { return len(keysUnder(t, client, "g")) == 3 })
	for _, key := range keysUnder(t, client, "g") {
		require.Equal(t, g.Revision(), revisionOf(t, client, key))
	}
}

// The end of a part is the end of all, even if that part had been granted.
func TestAGroupOfWhichAPartIsGoneIsNotGranted(t *testing.T) {
	for name, index := range map[string]int{"granted": 0, "waiting": 2} {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t)
			s, other := open(t, client), open(t, client)
			g := joinAll(t, other, places(other, 3)[1:]...)
			mine := joinAll(t, s, places(s, 3)...)
			waiting := standing(t, c, mine)
			remove(t, client, string(mine.Guards()[index].KeyBytes()))
			requireWaiting(t, waiting)
			leave(t, g)
			require.ErrorIs(t, result(t, waiting), fairqueue.ErrGone)
			eventuallyEmpty(t, client, "g")
		})
	}
}

// To ask about so many takes two reads. Between them the first ticket goes, and only then the last
// place becomes free.
func TestAGroupThatWasNeverThereTogetherIsNotGranted(t *testing.T) {
	c, client := begin(t)
	s, other := open(t, client), open(t, client)
	shared := places(s, 60)
	for i := range shared {
		shared[i].Mode = fairqueue.Shared
	}
	holder := hold(t, places(other, 60)[59].Queue, fairqueue.Exclusive)
	second := c.Hold("Txn", embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == 3*(60-42) && r.Success[0].GetRequestRange() != nil
	}))
	var g *fairqueue.Ticket
	require.NoError(t, during(t, second, func() (err error) {
		g, err = fairqueue.JoinN(within(t, patience), s, 60, shared...)
		return err
	}, func() {
		remove(t, client, keysUnder(t, client, "g/0")[0])
		leave(t, holder)
	}))
	require.ErrorIs(t, g.Wait(within(t, patience)), fairqueue.ErrGone)
	eventuallyEmpty(t, client, "g")
}

// The loss of any is the loss of all; and what is left goes when the group leaves.
func TestAGroupThatLosesAPartIsLost(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	g := joinAll(t, s, places(s, 3)...)
	watches := spyOnWatches(c)
	ctx, cancel := context.WithCancel(within(t, patience))
	ended, told := lost(t, ctx, g), lost(t, within(t, patience), g)
	watches.await(t, 6)
	cancel()
	require.ErrorIs(t, result(t, ended), context.Canceled)
	requireWaiting(t, told)
	remove(t, client, keysUnder(t, client, "g")[1])
	require.ErrorIs(t, result(t, told), fairqueue.ErrGone)

	require.ErrorIs(t, g.Leave(within(t, patience)), fairqueue.ErrGone)
	eventuallyEmpty(t, client, "g")
	leave(t, g)
	require.True(t, joinAll(t, s, places(s, 3)...).Granted())
}

// All go or none, so what a second attempt finds tells whether the first was applied.
func TestAGroupThatLosesAPartWhileItLeavesSaysSo(t *testing.T) {
	for name, applied := range map[string]bool{"request lost": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t)
			g := joinAll(t, open(t, client), places(open(t, client), 3)...)
			lose, meanwhile := c.LoseRequest, func() { remove(t, client, keysUnder(t, client, "g")[1]) }
			want := fairqueue.ErrGone
			if applied {
				lose, meanwhile, want = c.LoseReply, func() { eventuallyEmpty(t, client, "g") }, nil
			}
			fault := lose("Txn", embedtest.Once(), embedtest.When(leavingAll(3)))
			left := during(t, fault, func() error { return g.Leave(within(t, patience)) }, meanwhile)
			require.ErrorIs(t, left, want)
			eventuallyEmpty(t, client, "g")
		})
	}
}

// withLimit starts etcd with another --max-txn-ops.
func withLimit(t testing.TB, limit uint) *embedtest.Cluster {
	return embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps = limit }))
}

// Each place takes one comparison and one write. What a join and a try do besides must not take any from them.
func TestAGroupHasAsManyPlacesAsEtcdAllows(t *testing.T) {
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := withLimit(t, 16)
			client := c.Client(t)
			s := open(t, client)
			last := queueAt(open(t, client), "g/14")
			all := placesWith(s, 15, fairqueue.Options{Recheck: 20 * time.Millisecond}, mode)
			for range 3 {
				g := joinAll(t, s, all...)
				require.NoError(t, g.Wait(within(t, patience)))
				require.Len(t, keysUnder(t, client, "g"), 15)
				leave(t, g)
				require.Empty(t, keysUnder(t, client, "g"))

				g, err := fairqueue.TryN(within(t, patience), s, 15, all...)
				require.NoError(t, err)
				require.NoError(t, g.Wait(within(t, patience)))
				waiting := join(t, last, fairqueue.Exclusive)
				require.NoError(t, g.ReleaseAfter(within(t, patience), time.Millisecond))
				require.NoError(t, waiting.Wait(within(t, patience)))

				require.ErrorIs(t, errorOf(fairqueue.TryN(within(t, patience), s, 15, all...)), fairqueue.ErrBusy)
				g = joinAll(t, s, all...)
				rechecks := spyOnRequests(c, "Txn", looking)
				blocked := wait(t, within(t, patience), g)
				rechecks.await(t, 4)
				requireWaiting(t, blocked)
				leave(t, waiting)
				requireGranted(t, blocked)
				leave(t, g)
			}
			err := errorOf(fairqueue.JoinN(within(t, patience), s, 17, places(s, 17)...))
			requireTooMany(t, err, fairqueue.TooManyError{Places: 17})
			require.ErrorContains(t, err, "--max-txn-ops")
			require.Empty(t, keysUnder(t, client, "g"))
		})
	}
}

// An attempt whose answer is lost leaves its names in doubt, and the next attempt takes others where etcd turns out to
// allow fewer operations. When the doubt ends, the names of the first attempt are free, and not those in use.
func TestTheEndOfADoubtFreesTheNamesOfItsAttempt(t *testing.T) {
	c := withLimit(t, 8)
	s := open(t, c.Client(t))
	all := places(s, 5)
	first := c.Refuse("Txn", rpctypes.ErrGRPCTimeout, embedtest.Once(), embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == 2*len(all) // a write and a read for each
	}))
	g := joinAll(t, s, all...)
	require.NoError(t, first.Wait(within(t, patience)))
	require.NoError(t, g.Wait(within(t, patience)))
	require.True(t, strings.HasSuffix(g.Key(), "-1"), g.Key())
	eventually(t, "the first name is free", func() bool {
		next := join(t, all[0].Queue, fairqueue.Exclusive)
		defer leave(t, next)
		require.NotEqual(t, g.Key(), next.Key())
		return strings.HasSuffix(next.Key(), "-0")
	})
	leave(t, g)
}

// The loss of a part is found while others wait, the last part's as well.
func TestAGroupThatHasLostAPartDoesNotWaitForTheRest(t *testing.T) {
	for name, tt := range map[string]struct{ n, want, from, to, lost int }{
		"all": {3, 3, 1, 3, 0}, "any": {3, 2, 1, 3, 0}, "the last of very many": {127, 127, 0, 1, 126},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := begin(t)
			s := open(t, client)
			queues := placesWith(s, tt.n, fairqueue.Options{Recheck: 20 * time.Millisecond}, fairqueue.Exclusive)
			before := joinAll(t, s, queues[tt.from:tt.to]...)
			g := joinN(t, s, tt.want, queues...)
			waiting := wait(t, within(t, patience), g)
			remove(t, client, string(g.Guards()[tt.lost].KeyBytes()))
			require.ErrorIs(t, result(t, waiting), fairqueue.ErrGone)
			leave(t, before)
			eventuallyEmpty(t, client, "g")
		})
	}
}
