package etcdlock_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// fillUp raises the alarm that etcd raises when its database has reached its quota: from then on it
// refuses whatever puts a key or grants a lease.
func fillUp(t *testing.T, cluster *embedtest.Cluster) (disarm func()) {
	t.Helper()
	require.NoError(t, cluster.RaiseAlarm(within(t), etcdserverpb.AlarmType_NOSPACE))
	return func() { require.NoError(t, cluster.DisarmAlarms(within(t))) }
}

// countPuts counts the transactions of all clients that put something.
func countPuts(cluster *embedtest.Cluster) *atomic.Int64 {
	puts := new(atomic.Int64)
	cluster.LoseRequest("Txn", embedtest.When(func(message any) bool {
		if creates(message) {
			puts.Add(1)
		}
		return false
	}))
	return puts
}

// No space is that error, wrapped with the lock's name, at once. A hold goes on, and can
// be released.
func TestWhileEtcdHasNoSpaceHoldsStayAndEndAndNoneBegin(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		inTheWay := lock(t, b.blocker())
		waiting := b.wait(within(t), t, b.orders(t), 1)
		newcomer, other := b.orders(t), b.open(newSession(t, b.client), "other")
		held := lock(t, b.open(b.session, "held"))
		disarm := fillUp(t, b.cluster)
		puts := countPuts(b.cluster)

		for _, call := range append(bothCalls(other), newcomer.Lock) {
			before := puts.Load()
			h, err := call(within(t))
			require.Nil(t, h)
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
			require.ErrorAs(t, err, new(*etcdlock.Error))
			require.LessOrEqual(t, puts.Load(), before+1, "what is refused is not tried again")
		}
		b.requireBusy(t, newcomer) // which needs no space to be found out

		require.NoError(t, b.session.Renew(within(t)))
		_, err := held.Txn(within(t)).Then(clientv3.OpGet(held.Key())).Commit()
		require.NoError(t, err)
		unlock(t, held)
		requireWaiting(t, waiting)
		unlock(t, inTheWay)
		r := await(t, "the one in line", waiting)
		if strings.HasPrefix(b.title, "Semaphore") { // has to tell the next in line
			require.ErrorIs(t, r.err, rpctypes.ErrNoSpace)
		} else {
			require.NoError(t, r.err)
			unlock(t, r.hold)
		}
		requireNothingLeft(t, b.client)

		disarm()
		for _, l := range []etcdlock.Locker{newcomer, other} {
			unlock(t, lock(t, l))
		}
	})
}

func TestWhileEtcdHasNoSpaceThereAreNoNewSessions(t *testing.T) {
	cluster, client := newCluster(t)
	sessions := keep(t, cluster.Client(t))
	m := etcdlock.NewMutex(sessions, "orders")
	disarm := fillUp(t, cluster)
	_, err := session.New(within(t), client)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = m.Lock(within(t))
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.ErrorContains(t, err, `"orders"`)
	require.EqualValues(t, 2, cluster.Calls("LeaseGrant"), "they were not tried again")
	disarm()
	unlock(t, lock(t, m))
}

// There is no lease to be had that would keep the lock for the rest of the time, so that is left to
// the session.
func TestWhileEtcdHasNoSpaceAMinimumHoldEndsAllTheSame(t *testing.T) {
	cluster, client := newCluster(t)
	// Long enough for a look before it is over, however slow the machine.
	m := newMutex(t, cluster, etcdlock.WithMinHold(2*time.Second))
	h := lock(t, m)
	fillUp(t, cluster)
	require.ErrorIs(t, h.Unlock(within(t)), rpctypes.ErrNoSpace)
	require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
	awaitTickets(t, client, 0)
}

func TestATermThatRunsIntoNoSpaceGoesOnAndIsResigned(t *testing.T) {
	c := newContest(t)
	one := c.candidate()
	term := lead(t, one, "one")
	c.stand("two")
	disarm := fillUp(t, c.cluster)
	require.ErrorIs(t, term.Proclaim(within(t), "one, again"), rpctypes.ErrNoSpace)
	require.NoError(t, term.Err())
	require.NoError(t, term.Transfer(within(t), "two"), "which only deletes")
	resign(t, c.next("two"))
	require.ErrorIs(t, one.Run(within(t), "one", neverLeads), rpctypes.ErrNoSpace)
	awaitTickets(t, c.client, 0)
	disarm()
	resign(t, lead(t, one, "one"))
}
