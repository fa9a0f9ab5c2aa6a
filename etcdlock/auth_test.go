package etcdlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// permissions returns the prefixes that a user must be able to read and to write for the lock "orders"
// of a kind; see "Permissions" in docs/operating.md.
func (k kind) permissions() []string {
	queue := k.queue("orders") + "/"
	switch k.title {
	case "Semaphore with slots":
		return []string{queue, "etcdlock/orders!/slot/"}
	case "Multi":
		return []string{queue, "etcdlock/orders%20stock/", "etcdlock/orders%20prices/"}
	}
	return []string{queue}
}

const (
	limited = "limited" // has the permissions
	reader  = "reader"  // has them for reading only
	writer  = "writer"  // has them for writing only
	nobody  = "nobody"  // has none
)

// usersOf returns users with all permissions, and for each permission one that lacks it.
func usersOf(prefixes []string) (all []embedtest.User, lacking []string) {
	user := func(name string, grant func(string) embedtest.Grant, prefixes []string) {
		u := embedtest.User{Name: name, Password: name}
		for _, p := range prefixes {
			u.Grants = append(u.Grants, grant(p))
		}
		all = append(all, u)
		lacking = append(lacking, name)
	}
	user(reader, embedtest.Read, prefixes)
	user(writer, embedtest.Write, prefixes)
	user(nobody, embedtest.Read, nil)
	for i, p := range prefixes {
		user("without "+p, embedtest.ReadWrite, slices.Delete(slices.Clone(prefixes), i, i+1))
	}
	user(limited, embedtest.ReadWrite, prefixes)
	return all, lacking[:len(lacking)-1]
}

// forUsers runs a property over every kind of lock, each on a cluster with its users.
func forUsers(t *testing.T, property func(t *testing.T, b *bench, lacking []string)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.title, func(t *testing.T) {
			users, lacking := usersOf(k.permissions())
			b := &bench{kind: k}
			b.cluster, b.client = newCluster(t, embedtest.WithAuth("secret", users...))
			b.session = newSession(t, b.cluster.ClientAs(t, limited))
			property(t, b, lacking)
			requireNothingLeft(t, b.client)
		})
	}
}

// everything does all there is to do with a lock, in the session s: it is waited for, forced open, used and lost.
func (b *bench) everything(t *testing.T, s *session.Session) {
	t.Helper()
	l, client := b.open(s, "orders"), s.Client()
	inTheWay := lock(t, b.blocker())
	waiting := b.wait(within(t), t, l, 1)
	q := inspect(t, client, b.queue("orders"), etcdlock.AtPrefix())
	require.Len(t, q.Places, 2)
	require.Equal(t, inTheWay.Key(), q.Places[0].Key)
	require.Positive(t, q.Places[0].TTL)
	force(t, client, q.Places[0].Key, q.Places[0].Token)
	h := granted(t, waiting)
	require.ErrorIs(t, await(t, "the loss", lossOf(inTheWay)), etcdlock.ErrLost)

	_, err := h.Txn(within(t)).Then(clientv3.OpGet(h.Key())).Commit()
	require.NoError(t, err)
	require.NoError(t, h.Ensure(within(t), longTTL/2))
	remove(t, client, h.Key())
	require.ErrorIs(t, await(t, "the loss", lossOf(h)), etcdlock.ErrLost)
	require.ErrorIs(t, h.Unlock(within(t)), etcdlock.ErrLost)

	unlock(t, lock(t, l))
	h = tryLock(t, l)
	require.NoError(t, s.Close(within(t)), "a user may give back its own lease")
	require.ErrorIs(t, h.Err(), etcdlock.ErrClosed)
}

func TestAUserLimitedToTheLocksPrefixesCanDoEverythingWithIt(t *testing.T) {
	forUsers(t, func(t *testing.T, b *bench, _ []string) {
		b.everything(t, newSession(t, b.cluster.ClientAs(t, limited)))
	})
}

func TestEverythingCanBeDoneOverTLS(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) { b.everything(t, newSession(t, b.cluster.Client(t))) }, embedtest.WithMutualTLS())
}

// The connections that are made anew are encrypted as well.
func TestAWaiterOverTLSOutlivesTheRestartOfItsMember(t *testing.T) {
	cluster, _ := newCluster(t, embedtest.WithTLS())
	blocker := lock(t, newMutex(t, cluster))
	before := cluster.Calls("Watch")
	waiting := locking(within(t), newMutex(t, cluster))
	awaitWatch(t, cluster, before)
	require.NoError(t, cluster.Members()[0].Restart())
	unlock(t, blocker)
	unlock(t, granted(t, waiting))
}

// lossOf delivers the end of a hold.
func lossOf(h *etcdlock.Hold) <-chan error {
	c := make(chan error, 1)
	context.AfterFunc(h.Context(), func() { c <- h.Err() })
	return c
}

func TestWithoutAnyOneOfThePermissionsEtcdsRefusalIsReturnedAtOnce(t *testing.T) {
	forUsers(t, func(t *testing.T, b *bench, lacking []string) {
		for _, user := range lacking {
			requireRefused(t, b, user, "orders")
			requireLacking(t, b, user)
		}
		requireRefused(t, b, limited, "outside")
	})
}

func requireRefused(t *testing.T, b *bench, user, name string) {
	t.Helper()
	s := newSession(t, b.cluster.ClientAs(t, user)) // for which no permission is needed
	require.NoError(t, s.Renew(within(t)))
	l := b.open(s, name)
	for _, call := range bothCalls(l) {
		before := b.requests()
		h, err := call(within(t))
		require.Nil(t, h, user)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, user)
		var named *etcdlock.Error
		require.ErrorAs(t, err, &named)
		require.Contains(t, named.Name, name)
		// Looks that are permitted, what is refused, a permit that has to be given back, the first
		// time in a session where its epoch may be, and two looks for each prefix at what is missing.
		require.LessOrEqual(t, b.requests(), before+18, "%s: it was not tried again", user)
	}
	require.NoError(t, s.Close(within(t)))
}

// requireLacking demands that the error names what a user lacks, so that it can be granted.
func requireLacking(t *testing.T, b *bench, user string) {
	t.Helper()
	s := newSession(t, b.cluster.ClientAs(t, user))
	_, err := b.open(s, "orders").Lock(within(t))
	missing, named := strings.CutPrefix(user, "without ")
	switch {
	case user == reader:
		require.ErrorContains(t, err, "must not write keys that begin with")
	case !named:
		require.ErrorContains(t, err, "must not read keys that begin with")
	default:
		require.ErrorContains(t, err, fmt.Sprintf("must not read keys that begin with %q", missing))
	}
	require.NoError(t, s.Close(within(t)))
}

func (b *bench) requests() int64 { return b.cluster.Calls("Range") + b.cluster.Calls("Txn") }

func TestReadPermissionIsEnoughToLook(t *testing.T) {
	users, _ := usersOf([]string{"etcdlock/orders/"})
	cluster, _ := newCluster(t, embedtest.WithAuth("secret", users...))
	term := lead(t, etcdlock.NewElection(newSession(t, cluster.ClientAs(t, limited)), "orders"), "me")

	onlooker := cluster.ClientAs(t, reader)
	require.Positive(t, inspect(t, onlooker, "orders").Places[0].TTL)
	election := etcdlock.NewElection(session.Keep(onlooker), "orders")
	leader, err := election.Leader(within(t))
	require.NoError(t, err)
	require.Equal(t, "me", leader.Value)
	for leader, err = range election.Observe(within(t)) {
		require.NoError(t, err)
		require.Equal(t, "me", leader.Value)
		break
	}
	for size, err := range etcdlock.NewSemaphore(session.Keep(onlooker), "orders", 1).Sizes(within(t)) {
		require.NoError(t, err)
		require.Zero(t, size)
		break
	}
	err = etcdlock.ForceRelease(within(t), onlooker, leader.Key, leader.Token)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.NoError(t, term.Err())

	stranger := cluster.ClientAs(t, nobody)
	_, err = etcdlock.Inspect(within(t), stranger, "orders")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorContains(t, err, `must not read keys that begin with "etcdlock/orders/"`)
	for _, err = range etcdlock.NewElection(session.Keep(stranger), "orders").Observe(within(t)) {
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.ErrorContains(t, err, `must not read keys that begin with "etcdlock/orders/"`)
		break
	}
	resign(t, term)
}

// A user with a password has a watch more, which keeps the stream open.
func TestAShutdownWithAPasswordLogsNothing(t *testing.T) {
	c, _ := newCluster(t, embedtest.WithAuth("secret"))
	for range 5 {
		core, logs := zapobserver.New(zap.WarnLevel)
		client, err := clientv3.New(clientv3.Config{
			Endpoints: c.Endpoints(), Username: "root", Password: "secret", Logger: zap.New(core),
		})
		require.NoError(t, err)
		var lines bytes.Buffer
		k := session.Keep(client, session.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
		h := lock(t, etcdlock.NewMutex(k, "orders"))
		before := c.Calls("Watch")
		waiting := locking(within(t), etcdlock.NewMutex(k, "orders"))
		awaitWatch(t, c, before)
		unlock(t, h)
		unlock(t, granted(t, waiting))
		require.NoError(t, k.Close(within(t)))
		require.NoError(t, client.Close())
		require.Empty(t, logs.All())
		require.Empty(t, lines.String())
	}
}
