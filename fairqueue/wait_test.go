package fairqueue_test

import (
	"context"
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

// pair is one that holds and one that waits for it, each with a client of its own.
// The waiter is standing at its watch.
type pair struct {
	c       *embedtest.Cluster
	client  *clientv3.Client // the holder's
	holder  *fairqueue.Ticket
	waiter  *fairqueue.Ticket
	waiting <-chan error
	watches *spy
}

// stand makes a pair. The waiter's looks without a reason come after recheck.
func stand(t *testing.T, c *embedtest.Cluster, theirs *clientv3.Client, recheck time.Duration) *pair {
	t.Helper()
	p := &pair{c: c, client: c.Client(t), watches: spyOnWatches(c)}
	p.holder = hold(t, queueAt(open(t, p.client), "q"), fairqueue.Exclusive)
	p.waiter = join(t, fairqueue.New(open(t, theirs), "q", fairqueue.Options{Recheck: recheck}), fairqueue.Exclusive)
	p.waiting = wait(t, within(t, patience), p.waiter)
	p.watches.await(t, 1)
	requireWaiting(t, p.waiting)
	return p
}

// The one ahead goes first, and the session does not know yet.
func TestAWaiterThatHasLostItsPlaceIsNotGranted(t *testing.T) {
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		for name, vanish := range map[string]func(*testing.T, *clientv3.Client, *fairqueue.Ticket){
			"lease revoked": func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) { revoke(t, client, own.Session()) },
			"key reborn": func(t *testing.T, client *clientv3.Client, own *fairqueue.Ticket) {
				remove(t, client, own.Key())
				put(t, client, own.Key())
			},
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				c, client := begin(t)
				holder, ticket := hold(t, newQueue(t, client), fairqueue.Exclusive), join(t, newQueue(t, client), mode)
				waiting := standing(t, c, ticket)
				vanish(t, client, ticket)
				requireWaiting(t, waiting)
				leave(t, holder)
				require.ErrorIs(t, result(t, waiting), session.ErrLost)
			})
		}
	}
}

func TestTheNextLookFindsTheOwnKeyGone(t *testing.T) {
	c, client := begin(t)
	p := stand(t, c, client, 20*time.Millisecond)
	remove(t, client, p.waiter.Key())
	require.ErrorIs(t, result(t, p.waiting), session.ErrLost)
	require.NoError(t, p.waiter.Session().Err())
	require.Equal(t, []string{p.holder.Key()}, keysUnder(t, client, "q"))
}

// Whatever happens to the watch, to etcd and to the history of keys, the waiter is granted when the holder has left.
func TestTroubleDoesNotStopAWaiter(t *testing.T) {
	for name, trouble := range map[string]func(t *testing.T, p *pair, link *embedtest.Link){
		// The client resumes the watch at the last revision that it saw, which does not exist any more.
		"a resumed watch is compacted": func(t *testing.T, p *pair, link *embedtest.Link) {
			link.Cut()
			compact(t, p.c)
			link.Heal()
			p.watches.await(t, 2) // it has looked and watches again
			leave(t, p.holder)
		},
		"the event is compacted": func(t *testing.T, p *pair, link *embedtest.Link) {
			link.Cut()
			leave(t, p.holder)
			compact(t, p.c)
			link.Heal()
		},
		"a restart and a compaction": func(t *testing.T, p *pair, link *embedtest.Link) {
			link.Cut()
			require.NoError(t, p.c.Members()[0].Restart())
			leave(t, p.holder)
			compact(t, p.c)
			link.Heal()
		},
		"no leader": endStream(rpctypes.ErrGRPCNoLeader),
		"corrupt":   endStream(rpctypes.ErrGRPCCorrupt),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := begin(t)
			theirs, link := c.Link(t)
			p := stand(t, c, theirs, never)
			trouble(t, p, link)
			requireGranted(t, p.waiting)
		})
	}
}

// Nothing is granted or lost by mistake, and what happens afterwards is noticed, even without the event.
func TestTroubleMisleadsNeitherAWaiterNorAnObserver(t *testing.T) {
	for name, tt := range troubles {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t, embedtest.WithSize(tt.size))
			theirs, link := c.Link(t)
			p := stand(t, c, theirs, 50*time.Millisecond)
			told := lost(t, within(t, patience), p.waiter)
			over := tt.begin(t, c, link, p.watches)
			elsewhere(t, c)
			over()
			p.watches.await(t, p.watches.seen()+6) // both have looked, and watch again
			requireWaiting(t, p.waiting)
			requireWaiting(t, told)
			leave(t, p.holder)
			requireGranted(t, p.waiting)
			requireWaiting(t, told)
			c.SwallowWatchEvents()
			remove(t, client, p.waiter.Key())
			require.ErrorIs(t, result(t, told), session.ErrLost)
		})
	}
}

// endStream ends the waiter's stream of watches at its next message, which is another watch of the same client.
func endStream(reason error) func(t *testing.T, p *pair, _ *embedtest.Link) {
	return func(t *testing.T, p *pair, _ *embedtest.Link) {
		fault := p.c.Refuse("Watch", reason, embedtest.Once())
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(within(t, patience)))
		defer cancel()
		p.waiter.Session().Client().Watch(ctx, "elsewhere")
		require.NoError(t, fault.Wait(within(t, patience)))
		leave(t, p.holder)
	}
}

// Watches fail on creation, or the request or the notice that answers it vanishes.
func TestAWatchThatIsNotCreatedIsTriedOnAnotherStream(t *testing.T) {
	for name, n := range map[string]int{"refused": 4, "lost": 1} {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t)
			fault := c.LoseRequest("Watch", embedtest.Once())
			if n > 1 {
				fault.Heal()
				fault = c.Refuse("Watch", rpctypes.ErrGRPCNoLeader, embedtest.Times(n))
			}
			p := stand(t, c, client, never)
			require.Equal(t, n, fault.Bites())
			require.Positive(t, streamOf(t, p.waiter.Session()))
			leave(t, p.holder)
			requireGranted(t, p.waiting)
		})
	}
}

// streamOf returns the number of the stream on which a session watches.
func streamOf(t *testing.T, s *session.Session) int64 {
	t.Helper()
	other, err := s.Link().Watch(within(t, patience), patience, "", "elsewhere")
	require.NoError(t, err)
	defer other.Stop()
	return other.Stream
}

// The member that serves the watch loses its leader, and stays isolated.
func TestAWaiterLeavesAMemberThatHasLostTheLeader(t *testing.T) {
	c, client := begin(t, embedtest.WithSize(3))
	members := c.Members()
	serves := make([]*spy, len(members))
	for i, m := range members {
		serves[i] = spyOnWatches(c, embedtest.On(m))
	}
	p := stand(t, c, client, never)
	var bad, good *embedtest.Member
	for i, m := range members {
		if serves[i].seen() > 0 {
			bad = m
		} else {
			good = m
		}
	}
	require.NotNil(t, bad)
	bad.Isolate()
	_, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	// The holder's client may still talk to the isolated member. So a key it is.
	remove(t, good.Client(t), p.holder.Key())
	requireGranted(t, p.waiting)
	bad.Heal()
}

// All that the waiter can reach is isolated. It lives on stale answers, is not
// granted on them, and goes on when the member is back.
func TestAWaiterOnAnIsolatedMemberGoesOnWhenItIsBack(t *testing.T) {
	c, _ := begin(t, embedtest.WithSize(3))
	alone, good := c.Members()[0], c.Members()[1]
	p := stand(t, c, alone.Client(t), 20*time.Millisecond)
	alone.Isolate()
	_, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	remove(t, good.Client(t), p.holder.Key())
	stale := spyOnRequests(c, "Txn", func(message any) bool {
		reads := message.(*etcdserverpb.TxnRequest).Success
		return len(reads) == 2 && reads[0].GetRequestRange().GetSerializable() && reads[1].GetRequestRange().GetSerializable()
	}, embedtest.On(alone))
	stale.await(t, 3)
	requireWaiting(t, p.waiting)
	alone.Heal()
	requireGranted(t, p.waiting)
}

// leaveBehind isolates a member, without a watch on it. What it returns makes it the
// only one that answers reads which any member may.
func leaveBehind(t *testing.T, c *embedtest.Cluster) (answerFromBehind func()) {
	t.Helper()
	behind := c.Members()[2]
	behind.Isolate()
	_, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	c.Refuse("Watch", rpctypes.ErrGRPCNoLeader, embedtest.On(behind))
	isLocal := func(message any) bool {
		switch r := message.(type) {
		case *etcdserverpb.RangeRequest:
			return r.Serializable
		case *etcdserverpb.TxnRequest:
			return looking(r) && r.Success[0].GetRequestRange().Serializable
		}
		return false
	}
	methods := []string{"Range", "Txn"}
	for _, method := range methods {
		// It would keep silent for a while.
		c.Refuse(method, rpctypes.ErrGRPCStopped, embedtest.On(behind),
			embedtest.When(func(message any) bool { return !isLocal(message) }))
	}
	return func() {
		for _, m := range c.Members()[:2] {
			for _, method := range methods {
				c.Refuse(method, rpctypes.ErrGRPCStopped, embedtest.On(m), embedtest.When(isLocal))
			}
		}
	}
}

// A look is answered by a member that is behind, so far that it has not heard of the
// ticket: the quorum is asked instead, whether the ticket is granted and whether it is lost.
func TestAnAnswerOlderThanTheTicketIsNotBelieved(t *testing.T) {
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			c, client := begin(t, embedtest.WithSize(3))
			good := c.Members()[0].Client(t)
			mine := newQueue(t, client)
			holder := hold(t, newQueue(t, client), fairqueue.Exclusive)
			answerFromBehind := leaveBehind(t, c)

			ticket := join(t, mine, mode)
			waiting := standing(t, c, ticket)
			answerFromBehind()
			remove(t, good, holder.Key())
			requireGranted(t, waiting)

			quorum := spyOnRequests(c, "Range", func(message any) bool {
				r := message.(*etcdserverpb.RangeRequest)
				return string(r.Key) == ticket.Key() && !r.Serializable
			})
			told := lost(t, within(t, patience), ticket)
			quorum.await(t, 1)
			requireWaiting(t, told)
			remove(t, good, ticket.Key())
			require.ErrorIs(t, result(t, told), session.ErrLost)
		})
	}
}

func TestASwallowedEventIsFoundByTheNextLook(t *testing.T) {
	c, client := begin(t)
	p := stand(t, c, client, 100*time.Millisecond)
	fault := c.SwallowWatchEvents()
	leave(t, p.holder)
	requireGranted(t, p.waiting)
	require.Positive(t, fault.Bites())
	require.EqualValues(t, 1, streamOf(t, p.waiter.Session()), "the stream that has missed an event is not used again")
}

// Invariant 4: what happens between the look and the watch is not missed.
func TestADeletionBeforeTheWatchStandsIsSeen(t *testing.T) {
	for name, reborn := range map[string]bool{"deleted": false, "reborn": true} {
		t.Run(name, func(t *testing.T) {
			_, client := begin(t)
			holder, ticket := hold(t, newQueue(t, client), fairqueue.Exclusive), join(t, newQueue(t, client), fairqueue.Exclusive)
			remove(t, client, holder.Key())
			if reborn {
				put(t, client, holder.Key())
			}
			require.NoError(t, ticket.Wait(within(t, patience)))
		})
	}
}

// A context that has ended wins over a grant, even over one that needs no request.
func TestAWaitWhoseContextHasEndedIsNotGrantedAndFreesItsName(t *testing.T) {
	_, client, q := beginQueue(t)
	ticket := join(t, q, fairqueue.Exclusive)
	require.ErrorIs(t, ticket.Wait(cancelled()), context.Canceled)
	eventuallyEmpty(t, client, "q")
	requireNameFree(t, ticket.Session(), fairqueue.Exclusive)
}

// When it heals, the bytes arrive that were sent, followed by those that cancel the requests. Whichever wins, nothing
// is left that blocks others.
func TestCallsEndWithTheirContextInABlackHole(t *testing.T) {
	c, client, mine := beginQueue(t)
	theirs, link := c.Link(t)
	s := open(t, theirs)
	q := fairqueue.New(s, "q", fairqueue.Options{Recheck: 50 * time.Millisecond})
	holder := hold(t, mine, fairqueue.Exclusive)
	watching, blocked := join(t, q, fairqueue.Exclusive), join(t, q, fairqueue.Exclusive)
	held := hold(t, queueAt(s, "other"), fairqueue.Exclusive)
	behind := join(t, mine, fairqueue.Exclusive)

	ctx, cancel := context.WithCancel(within(t, patience))
	waiting := standingUntil(t, ctx, c, watching)
	link.Blackhole()
	var calls []<-chan error
	for _, call := range []func(context.Context) error{
		blocked.Wait, // without a watch
		held.Leave,
		func(ctx context.Context) error { return ways["join"].join(ctx, q) },
		func(ctx context.Context) error { return ways["join"].join(ctx, q) },
		func(ctx context.Context) error { return ways["try to share"].join(ctx, q) },
		func(ctx context.Context) error { _, _, err := q.Entries(ctx); return err },
	} {
		calls = append(calls, background(t, func() error { return call(within(t, brief)) }))
	}
	for i, call := range calls {
		require.ErrorIs(t, result(t, call), context.DeadlineExceeded, i)
	}
	cancel()
	require.ErrorIs(t, result(t, waiting), context.Canceled, "with a watch")
	link.Heal()
	leave(t, holder)
	require.NoError(t, behind.Wait(within(t, patience)))
	require.NoError(t, s.Err())
	leave(t, behind)
	eventuallyEmpty(t, client, "q")
	eventuallyEmpty(t, client, "other")
}

func TestARefusalEndsTheWait(t *testing.T) {
	for _, method := range []string{"Range", "Watch"} {
		t.Run(method, func(t *testing.T) {
			c, client, q := beginQueue(t)
			holder, ticket := hold(t, q, fairqueue.Exclusive), join(t, q, fairqueue.Exclusive)
			put(t, client, "elsewhere") // so that there is a reason to look
			fault := c.Refuse(method, rpctypes.ErrGRPCPermissionDenied)
			err := result(t, wait(t, within(t, patience), ticket))
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
			require.NotErrorIs(t, err, session.ErrLost)
			fault.Heal()
			leave(t, holder)
			eventuallyEmpty(t, client, "q")
		})
	}
}

func TestClosingTheSessionEndsTheWait(t *testing.T) {
	c, client := begin(t)
	p := stand(t, c, client, never)
	require.NoError(t, p.waiter.Session().Close(within(t, patience)))
	require.ErrorIs(t, result(t, p.waiting), session.ErrClosed)
	require.ErrorIs(t, p.waiter.Wait(within(t, patience)), session.ErrClosed)
	require.Equal(t, []string{p.holder.Key()}, keysUnder(t, client, "q"))
}
