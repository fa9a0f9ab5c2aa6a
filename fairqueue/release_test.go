package fairqueue_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// More than etcd grants is as much as it grants.
func TestATicketCanBeReleasedAfterAnyTime(t *testing.T) {
	_, client := begin(t)
	holder := hold(t, newQueue(t, client), fairqueue.Exclusive)
	require.NoError(t, holder.ReleaseAfter(within(t, patience), math.MaxInt64))
	lease, err := client.TimeToLive(within(t, patience), leaseOf(t, client, holder.Key()))
	require.NoError(t, err)
	require.EqualValues(t, 9_000_000_000, lease.GrantedTTL)
}

func TestTheReleaseOfALostTicketIsAnError(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	holder := hold(t, q, fairqueue.Exclusive)
	remove(t, client, holder.Key())
	put(t, client, holder.Key()) // somebody else's
	require.ErrorIs(t, holder.ReleaseAfter(within(t, patience), time.Hour), fairqueue.ErrGone)
	require.Zero(t, entriesOf(t, q)[0].Lease)
	require.NoError(t, holder.ReleaseAfter(within(t, patience), time.Hour), "it has left")
	remove(t, client, holder.Key())
	require.Equal(t, holder.Key(), hold(t, q, fairqueue.Exclusive).Key(), "the name is free again")
}

// The others would keep everybody waiting, and protect nothing.
func TestTicketsOfAGroupThatHasLostOneGoAtOnce(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	g := joinAll(t, s, places(s, 3)...)
	remove(t, client, g.Key())
	require.ErrorIs(t, g.ReleaseAfter(within(t, patience), never), fairqueue.ErrGone)
	eventuallyEmpty(t, client, "g")
	require.NoError(t, s.Err())
}

func TestATicketWhoseReleaseFailsStaysWithTheSession(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	holder := hold(t, q, fairqueue.Exclusive)
	c.Refuse("Txn", rpctypes.ErrGRPCPermissionDenied, embedtest.Once(), embedtest.When(creating))
	require.ErrorIs(t, holder.ReleaseAfter(within(t, patience), never), rpctypes.ErrPermissionDenied)
	require.Equal(t, holder.Revision(), revisionOf(t, client, holder.Key()), "it stays with the session for that time")
}

// Whether the ticket has moved to it is not known.
func TestALeaseThatATicketMayHaveMovedToIsLeftAlone(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	holder := hold(t, queueAt(s, "q"), fairqueue.Exclusive)
	fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creating))
	c.Refuse("Txn", rpctypes.ErrGRPCPermissionDenied, embedtest.Once(), embedtest.When(creating)) // the second attempt
	released := during(t, fault, func() error { return holder.ReleaseAfter(within(t, patience), never) }, func() {
		eventually(t, "it has moved", func() bool { return leaseOf(t, client, holder.Key()) != s.Lease() })
	})
	require.ErrorIs(t, released, rpctypes.ErrPermissionDenied)
	require.Equal(t, holder.Revision(), revisionOf(t, client, holder.Key()))
	require.Len(t, leases(t, client), 2)
}

// The answer is lost, and the second attempt finds its own.
func TestALostReplyOfALaterReleaseIsHarmless(t *testing.T) {
	c, client, q := beginQueue(t)
	holder := hold(t, q, fairqueue.Exclusive)
	fault := c.LoseReply("Txn", embedtest.Once())
	require.NoError(t, during(t, fault, func() error { return holder.ReleaseAfter(within(t, patience), time.Hour) }, nothing))
	require.Equal(t, holder.Revision(), revisionOf(t, client, holder.Key()))
	require.NotEqual(t, holder.Session().Lease(), entriesOf(t, q)[0].Lease)
}

// The lease has run out when the attempt that binds the ticket to it arrives.
func TestALateReleaseDoesNotCostTheSession(t *testing.T) {
	for name, d := range map[string]time.Duration{"in time": 1, "too early": never} {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			holder := hold(t, queueAt(s, "q"), fairqueue.Exclusive)
			fault := c.LoseRequest("Txn", embedtest.Once(), embedtest.When(creating))
			require.NoError(t, during(t, fault, func() error { return holder.ReleaseAfter(within(t, patience), d) }, func() {
				revokeOthers(t, client, s)
			}))
			require.NoError(t, s.Err())
			if d == never {
				require.Equal(t, holder.Revision(), revisionOf(t, client, holder.Key()), "until its time is over")
			} else {
				eventuallyEmpty(t, client, "q")
			}
		})
	}
}

// The first attempt was applied, so the ticket has gone when it was to go.
func TestATicketThatWasReleasedInTimeIsNotLost(t *testing.T) {
	for name, d := range map[string]time.Duration{"in time": 1, "too early": never} {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			holder := hold(t, queueAt(s, "q"), fairqueue.Exclusive)
			fault := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creating))
			err := during(t, fault, func() error { return holder.ReleaseAfter(within(t, patience), d) }, func() {
				eventually(t, "it has been applied", func() bool { return leaseOf(t, client, holder.Key()) != s.Lease() })
				revokeOthers(t, client, s)
				require.Zero(t, revisionOf(t, client, holder.Key()))
			})
			if d == never {
				require.ErrorIs(t, err, fairqueue.ErrGone)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, s.Err())
		})
	}
}

// revokeOthers ends all leases but the session's, as when their time is over.
func revokeOthers(t *testing.T, client *clientv3.Client, s *session.Session) {
	t.Helper()
	for _, lease := range leases(t, client) {
		if lease != s.Lease() {
			if _, err := client.Revoke(within(t, patience), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) { // run out just now
				require.NoError(t, err)
			}
		}
	}
}

func leases(t *testing.T, client *clientv3.Client) (ids []clientv3.LeaseID) {
	t.Helper()
	all, err := client.Leases(within(t, patience))
	require.NoError(t, err)
	for _, l := range all.Leases {
		ids = append(ids, l.ID)
	}
	return ids
}

func leaseOf(t *testing.T, client *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	answer, err := client.Get(within(t, patience), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}
