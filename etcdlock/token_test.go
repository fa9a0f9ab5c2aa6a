package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	tokenTTL = time.Second

	// unused is longer than a token lives without being used, and is then looked for.
	unused = 2500 * time.Millisecond
)

// shortLived is a cluster with short-lived tokens, a holder that is in the way, and a user.
type shortLived struct {
	cluster *embedtest.Cluster
	root    *session.Session
	user    *session.Session
}

func newShortLived(t *testing.T) *shortLived {
	t.Helper()
	c := embedtest.Start(t, embedtest.WithTokenTTL(tokenTTL), embedtest.WithAuth("secret",
		embedtest.User{Name: limited, Password: "l", Grants: []embedtest.Grant{embedtest.ReadWrite("etcdlock/")}}))
	return &shortLived{cluster: c, root: newSession(t, c.Client(t)), user: newSession(t, c.ClientAs(t, limited))}
}

// probe asks for one more watch on the stream that the session's watches share, which is
// refused when the token that the stream was opened with is no more.
func probe(s *session.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	created := <-s.Client().Watch(clientv3.WithRequireLeader(ctx), "etcdlock/probe", clientv3.WithCreatedNotify())
	return created.Err()
}

// awaitExpiry waits until the token of the session's stream has expired. A look makes it
// last again, so they are far between.
func awaitExpiry(t *testing.T, s *session.Session) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		err = probe(s)
		return err != nil
	}, patience, unused)
	require.ErrorContains(t, err, "invalid auth token")
}

func TestWaitersHoldersCandidatesAndObserversOutliveTheirToken(t *testing.T) {
	t.Parallel()
	e := newShortLived(t)
	blocker := lock(t, etcdlock.NewMutex(e.root, "orders"))
	leader := lead(t, etcdlock.NewElection(e.root, "controller"), "root")

	before := e.cluster.Calls("Watch")
	held := lock(t, etcdlock.NewMutex(e.user, "held"))
	waiting := locking(within(t), etcdlock.NewMutex(e.user, "orders"))
	standing := campaigning(within(t), etcdlock.NewElection(e.user, "controller"), "me")
	seen := observing(within(t), etcdlock.NewElection(e.user, "controller"), "me")
	await(t, "the leader", seen.first)
	awaitWatch(t, e.cluster, before+2) // one for each; holds follow when they are older
	awaitExpiry(t, e.user)

	unlock(t, blocker)
	unlock(t, granted(t, waiting))
	resign(t, leader)
	resign(t, awaitTerm(t, "the user", standing))
	require.Equal(t, []string{"root", "me"}, values(await(t, "the observer", seen.all)))
	require.NoError(t, held.Err())
	require.NoError(t, e.user.Renew(within(t)))
	remove(t, e.root.Client(), held.Key())
	require.ErrorIs(t, await(t, "the loss", lossOf(held)), etcdlock.ErrLost)
	require.NoError(t, e.user.Err())
	requireNothingLeft(t, e.root.Client())
}

// A stream keeps the token that it was opened with, so a waiter that comes when that has expired has to have another
// stream, or it would have to poll.
func TestAnExpiredTokenOfTheStreamStopsNoLaterWatch(t *testing.T) {
	t.Parallel()
	e := newShortLived(t)
	// Another watch on the stream, or it would be closed with its last one.
	created := <-e.user.Client().Watch(clientv3.WithRequireLeader(t.Context()), "etcdlock/other", clientv3.WithCreatedNotify())
	require.NoError(t, created.Err())
	awaitExpiry(t, e.user)

	_, err := e.root.Client().Put(within(t), "etcdlock/orders/blocker", "") // a hold would have a watch of its own
	require.NoError(t, err)
	stands := e.cluster.Delay("Watch", 0, embedtest.When(func(message any) bool {
		answer, ok := message.(*etcdserverpb.WatchResponse)
		return ok && answer.Created && !answer.Canceled
	}))
	waiting := locking(within(t), etcdlock.NewMutex(e.user, "orders"))
	require.NoError(t, stands.Wait(within(t)))
	remove(t, e.root.Client(), "etcdlock/orders/blocker")
	unlock(t, granted(t, waiting))
	requireNothingLeft(t, e.root.Client())
}
