package etcdlock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// expiring waits behind others with a deadline that is over when it is in line.
func expiring(t *testing.T, l etcdlock.Locker) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return await(t, "the time-out", locking(ctx, l)).err
}

func TestAWaitThatTimesOutSaysWhoIsInTheWay(t *testing.T) {
	cluster, client := newCluster(t)
	owner := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLabel("nightly run"))
	other := newSession(t, cluster.Client(t))
	h := lock(t, owner)
	waiting := locking(within(t), owner)
	awaitTickets(t, client, 2)
	for what, l := range map[string]etcdlock.Locker{
		"mutex": etcdlock.NewMutex(other, "orders"), "reader": etcdlock.NewRWMutex(other, "orders").RLocker(),
		"multi": allOf(other, "free", "orders"),
	} {
		err := expiring(t, l)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		var blocked *etcdlock.BlockedError
		require.ErrorAs(t, err, &blocked, what)
		require.Equal(t, os.Getpid(), blocked.Owner.PID)
		require.Equal(t, filepath.Base(os.Args[0]), blocked.Owner.Program)
		require.Equal(t, "nightly run", blocked.Owner.Label)
		require.Equal(t, h.Token(), blocked.Token)
		require.Equal(t, h.Key(), blocked.Key)
		require.Equal(t, 2, blocked.Ahead)
		require.ErrorContains(t, err, `2 ahead, owned by `)
		require.ErrorContains(t, err, `"nightly run" since `)
		awaitTickets(t, client, 2)
	}
	unlock(t, h)
	unlock(t, granted(t, waiting))
}

// expired returns what the error of a wait that timed out knows of the owner, and its text.
func expired(t *testing.T, l etcdlock.Locker) (*etcdlock.BlockedError, string) {
	t.Helper()
	err := expiring(t, l)
	var blocked *etcdlock.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.Equal(t, 1, blocked.Ahead)
	return blocked, err.Error()
}

// Whatever is there, its owner may mean it, so it is waited for. But the waiter is told what it is.
func TestAKeyOfAnotherProgramIsNamedWithItsLeaseAndHowToRemoveIt(t *testing.T) {
	_, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	for _, name := range []string{"", "foo", "x", "694d-0", "x694d", "x-1-2", "lfoo", "p1-2-3-4"} {
		key := "etcdlock/orders/" + name
		put, err := client.Put(within(t), key, "by hand")
		require.NoError(t, err)
		blocked, text := expired(t, m)
		require.True(t, blocked.Foreign, key)
		require.Zero(t, blocked.Owner)
		require.Equal(t, "by hand", blocked.Value)
		require.Equal(t, key, blocked.Key)
		require.Equal(t, etcdlock.Token(put.Header.Revision), blocked.Token)
		require.Zero(t, blocked.Lease)
		require.Contains(t, text, fmt.Sprintf("the key %q of another program", key))
		require.Contains(t, text, "no lease and stays until it is removed")
		require.Contains(t, text, "ForceRelease")
		require.NoError(t, etcdlock.ForceRelease(within(t), client, blocked.Key, blocked.Token))
	}

	s := newSession(t, client)
	_, err := client.Put(within(t), "etcdlock/orders/694d", "", clientv3.WithLease(s.Lease()))
	require.NoError(t, err)
	blocked, text := expired(t, m)
	require.True(t, blocked.Foreign)
	require.Equal(t, s.Lease(), blocked.Lease)
	require.Contains(t, text, fmt.Sprintf("until its lease %x is over", s.Lease()))
	awaitTickets(t, client, 1)
}

func TestOwnersOfThisModuleAreNotForeign(t *testing.T) {
	_, client := newCluster(t)
	mine, theirs := newSession(t, client), newSession(t, client)
	m := etcdlock.NewMutex(mine, "orders")
	for what, take := range map[string]func(ctx context.Context) (*etcdlock.Hold, error){
		"exclusive": etcdlock.NewMutex(theirs, "orders").Lock,
		"shared":    etcdlock.NewRWMutex(theirs, "orders").RLock,
		"permit": func(ctx context.Context) (*etcdlock.Hold, error) {
			return etcdlock.NewSemaphore(theirs, "orders", 3).Acquire(ctx, 2)
		},
		"candidate": func(ctx context.Context) (*etcdlock.Hold, error) {
			term, err := etcdlock.NewElection(theirs, "orders", etcdlock.WithPriority(3)).Campaign(ctx, "me")
			if err != nil {
				return nil, err
			}
			return term.Hold, nil
		},
	} {
		h, err := take(within(t))
		require.NoError(t, err, what)
		blocked, text := expired(t, m)
		require.False(t, blocked.Foreign, what)
		require.NotContains(t, text, "another program", what)
		require.Equal(t, theirs.Lease(), blocked.Lease, what)
		unlock(t, h)
	}
}

// A log line is no place for what others can make as long as they like.
func TestErrorsHaveTheBeginningOfWhatIsLong(t *testing.T) {
	_, client := newCluster(t)
	mine := newSession(t, client)
	long := strings.Repeat("é", 100_000)
	m := etcdlock.NewMutex(mine, "orders")
	short := func(err error) {
		t.Helper()
		require.Less(t, len(err.Error()), 1000)
		require.True(t, utf8.ValidString(err.Error()))
		require.NotContains(t, err.Error(), `\x`, "no letter is cut in two")
	}
	for _, value := range []string{long, `{"host":"` + long + `","program":"` + long + `","label":"` + long + `","since":"2024-01-01T00:00:00Z"}`} {
		for _, key := range []string{"foo", "x1-0", "l1-0"} {
			put, err := client.Put(within(t), "etcdlock/orders/"+key, value)
			require.NoError(t, err)
			err = expiring(t, m)
			var blocked *etcdlock.BlockedError
			require.ErrorAs(t, err, &blocked)
			require.Equal(t, value, blocked.Value)
			short(err)
			require.NoError(t, etcdlock.ForceRelease(within(t), client, blocked.Key, etcdlock.Token(put.Header.Revision)))
		}
	}
	_, err := etcdlock.NewMutex(mine, long).Lock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	short(err)
	_, err = etcdlock.NewMutex(mine, "orders", etcdlock.WithNamespace(long)).Lock(within(t))
	require.ErrorIs(t, err, etcdlock.ErrInvalidName)
	short(err)
}

// What stands behind the process does not count, whether it owns or waits, nor is it read.
func TestOneWhoWaitsInMemoryIsToldWhoIsAheadOfItsProcess(t *testing.T) {
	cluster, client := newCluster(t)
	m := newMutex(t, cluster, etcdlock.WithLocalHandover(noBound, 10),
		etcdlock.WithLabel("mine"))
	theirs := newMutex(t, cluster, etcdlock.WithLabel("theirs"))
	blocked := func() (b *etcdlock.BlockedError) {
		err := expiring(t, m)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, &b)
		return b
	}
	h := lock(t, m)
	behind := locking(within(t), theirs)
	awaitTickets(t, client, 2)
	whole := cluster.LoseRequest("Range", embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && len(r.RangeEnd) > 0
	}))
	b := blocked()
	whole.Heal()
	require.Equal(t, 1, b.Ahead)
	require.Equal(t, h.Key(), b.Key)
	require.Equal(t, h.Token(), b.Token)
	require.Equal(t, "mine", b.Owner.Label)
	require.Equal(t, os.Getpid(), b.Owner.PID)
	unlock(t, h)

	h = granted(t, behind)
	local := lineUp(t, within(t), m, 1)
	awaitTickets(t, client, 2)
	behind = locking(within(t), theirs)
	awaitTickets(t, client, 3)
	b = blocked()
	require.Equal(t, 1, b.Ahead)
	require.Equal(t, h.Key(), b.Key)
	require.Equal(t, "theirs", b.Owner.Label)
	unlock(t, h)
	unlock(t, granted(t, local[0]))
	unlock(t, granted(t, behind))
}

func TestInALongQueueOneWhoWaitsInMemoryIsNotToldWhoIsAhead(t *testing.T) {
	_, client := newCluster(t)
	for i := range 11 {
		var puts []clientv3.Op
		for j := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("etcdlock/orders/%d-%d", i, j), ""))
		}
		_, err := client.Txn(within(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	m := etcdlock.NewMutex(newSession(t, client), "orders", etcdlock.WithLocalHandover(noBound, 10))
	ctx, cancel := context.WithCancel(within(t))
	local := lineUp(t, ctx, m, 1)
	awaitTickets(t, client, 1101)
	err := expiring(t, m)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var blocked *etcdlock.BlockedError
	require.NotErrorAs(t, err, &blocked)
	cancel()
	require.ErrorIs(t, await(t, "the waiter", local[0]).err, context.Canceled)
	awaitTickets(t, client, 1100)
}

func TestACancelledWaitIsNotExplained(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, newMutex(t, cluster))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, newMutex(t, cluster))
	awaitTickets(t, client, 2)
	before := cluster.Calls("Range")
	cancel()
	err := await(t, "the waiter", waiting).err
	require.ErrorIs(t, err, context.Canceled)
	var blocked *etcdlock.BlockedError
	require.NotErrorAs(t, err, &blocked)
	require.Equal(t, before, cluster.Calls("Range"))
	unlock(t, h)
}

// Scenario W7: there is nobody to ask.
func TestATimedOutWaitInABlackHoleReturnsAllTheSame(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := lock(t, newMutex(t, cluster))
	client, link := cluster.Link(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	waiting := locking(ctx, m)
	awaitTickets(t, cluster.Client(t), 2)
	link.Blackhole()
	err := await(t, "the time-out", waiting).err
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var blocked *etcdlock.BlockedError
	require.NotErrorAs(t, err, &blocked)
	unlock(t, h)
}
