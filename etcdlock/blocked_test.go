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

// expired returns what the error of a wait that timed out knows of the owner, and its text.
func expired(t *testing.T, l etcdlock.Locker) (*etcdlock.BlockedError, string) {
	t.Helper()
	err := expiring(t, l)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var blocked *etcdlock.BlockedError
	require.ErrorAs(t, err, &blocked)
	return blocked, err.Error()
}

// requireUnexplained requires that a wait timed out, or was cancelled, and that its error does not say why.
func requireUnexplained(t *testing.T, err, end error) {
	t.Helper()
	require.ErrorIs(t, err, end)
	require.NotErrorAs(t, err, new(*etcdlock.BlockedError))
}

// An explanation has 200 ms, so these tests run where no time passes while etcd is at work.

func TestAWaitThatTimesOutNamesTheOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		owner := etcdlock.NewMutex(virtualSession(t, client), "orders", etcdlock.WithLabel("nightly run"))
		other := virtualSession(t, cluster.Client(t))
		h := lock(t, owner)
		waiting := queued(t, client, owner, 1)
		for what, l := range map[string]etcdlock.Locker{
			"mutex": etcdlock.NewMutex(other, "orders"), "reader": etcdlock.NewRWMutex(other, "orders").RLocker(),
			"multi": allOf(other, "free", "orders"),
		} {
			blocked, text := expired(t, l)
			require.Equal(t, os.Getpid(), blocked.Owner.PID)
			require.Equal(t, filepath.Base(os.Args[0]), blocked.Owner.Program)
			require.Equal(t, "nightly run", blocked.Owner.Label)
			require.Equal(t, h.Token(), blocked.Token)
			require.Equal(t, h.Key(), blocked.Key, what)
			require.Equal(t, 2, blocked.Ahead)
			require.Contains(t, text, `2 ahead, owned by `)
			require.Contains(t, text, `"nightly run" since `)
			awaitTickets(t, client, 2)
		}
		unlock(t, h)
		unlock(t, granted(t, waiting))
	})
}

// Whatever is there, its owner may mean it, so it is waited for. But the waiter is told what it is.
func TestAKeyOfAnotherProgramIsNamedWithItsLeaseAndHowToRemoveIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		m := etcdlock.NewMutex(virtualSession(t, client), "orders")
		for _, name := range []string{"", "foo", "x", "694d-0", "x694d", "x-1-2", "lfoo", "p1-2-3-4"} {
			key := "etcdlock/orders/" + name
			putKey(t, client, key, "by hand")
			blocked, text := expired(t, m)
			require.Equal(t, etcdlock.BlockedError{
				Key: key, Token: createdAt(t, client, key), Value: "by hand", Foreign: true, Ahead: 1, Err: blocked.Err,
			}, *blocked)
			require.Contains(t, text, fmt.Sprintf("the key %q of another program", key))
			require.Contains(t, text, "no lease and stays until it is removed")
			require.Contains(t, text, "ForceRelease")
			force(t, client, blocked.Key, blocked.Token)
		}

		s := virtualSession(t, client)
		_, err := client.Put(within(t), "etcdlock/orders/694d", "", clientv3.WithLease(s.Lease()))
		require.NoError(t, err)
		blocked, text := expired(t, m)
		require.True(t, blocked.Foreign)
		require.Equal(t, s.Lease(), blocked.Lease)
		require.Contains(t, text, fmt.Sprintf("until its lease %x is over", s.Lease()))
		awaitTickets(t, client, 1)
	})
}

func TestOwnersOfThisModuleAreNotForeign(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		mine, theirs := virtualSession(t, client), virtualSession(t, client)
		m := etcdlock.NewMutex(mine, "orders")
		for what, l := range map[string]etcdlock.Locker{
			"exclusive": etcdlock.NewMutex(theirs, "orders"),
			"shared":    etcdlock.NewRWMutex(theirs, "orders").RLocker(),
			"permit":    weighted{etcdlock.NewSemaphore(theirs, "orders", 3), 2},
			"candidate": candidate{etcdlock.NewElection(theirs, "orders", etcdlock.WithPriority(3))},
		} {
			h := lock(t, l)
			blocked, text := expired(t, m)
			require.False(t, blocked.Foreign, what)
			require.NotContains(t, text, "another program", what)
			require.Equal(t, theirs.Lease(), blocked.Lease, what)
			unlock(t, h)
		}
	})
}

// A log line is no place for what others can make as long as they like.
func TestErrorsHaveTheBeginningOfWhatIsLong(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		mine := virtualSession(t, client)
		long := strings.Repeat("é", 100_000)
		short := func(text string) {
			t.Helper()
			require.Less(t, len(text), 1000)
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, `\x`, "no letter is cut in two")
		}
		for _, value := range []string{long, `{"host":"` + long + `","program":"` + long + `","label":"` + long + `","since":"2024-01-01T00:00:00Z"}`} {
			for _, key := range []string{"foo", "x1-0", "l1-0"} {
				putKey(t, client, "etcdlock/orders/"+key, value)
				blocked, text := expired(t, etcdlock.NewMutex(mine, "orders"))
				require.Equal(t, value, blocked.Value)
				short(text)
				force(t, client, blocked.Key, blocked.Token)
			}
		}
		for _, m := range []*etcdlock.Mutex{etcdlock.NewMutex(mine, long), etcdlock.NewMutex(mine, "orders", etcdlock.WithNamespace(long))} {
			_, err := m.Lock(within(t))
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			short(err.Error())
		}
	})
}

// What stands behind the process does not count, whether it owns or waits, nor is it read.
func TestALocalWaiterIsToldWhatIsAheadOfItsProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		m := etcdlock.NewMutex(virtualSession(t, cluster.Client(t)), "orders", handedOn, etcdlock.WithLabel("mine"))
		theirs := etcdlock.NewMutex(virtualSession(t, cluster.Client(t)), "orders", etcdlock.WithLabel("theirs"))
		h := lock(t, m)
		behind := queued(t, client, theirs, 1)
		whole := cluster.LoseRequest("Range", embedtest.When(func(message any) bool {
			r, ok := message.(*etcdserverpb.RangeRequest)
			return ok && len(r.RangeEnd) > 0
		}))
		b, _ := expired(t, m)
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
		behind = queued(t, client, theirs, 2)
		b, _ = expired(t, m)
		require.Equal(t, 1, b.Ahead)
		require.Equal(t, h.Key(), b.Key)
		require.Equal(t, "theirs", b.Owner.Label)
		unlock(t, h)
		unlock(t, granted(t, local[0]))
		unlock(t, granted(t, behind))
	})
}

func TestInALongQueueALocalWaiterIsNotToldWhatIsAhead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		for i := range 11 {
			var puts []clientv3.Op
			for j := range 100 {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("etcdlock/orders/%d-%d", i, j), ""))
			}
			_, err := client.Txn(within(t)).Then(puts...).Commit()
			require.NoError(t, err)
		}
		m := etcdlock.NewMutex(virtualSession(t, client), "orders", handedOn)
		ctx, cancel := context.WithCancel(within(t))
		local := lineUp(t, ctx, m, 1)
		awaitTickets(t, client, 1101)
		requireUnexplained(t, expiring(t, m), context.DeadlineExceeded)
		cancel()
		require.ErrorIs(t, await(t, "the waiter", local[0]).err, context.Canceled)
		awaitTickets(t, client, 1100)
	})
}

func TestACancelledWaitIsNotExplained(t *testing.T) {
	cluster, client := newCluster(t)
	h := lock(t, newMutex(t, cluster))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, newMutex(t, cluster))
	awaitTickets(t, client, 2)
	before := cluster.Calls("Range")
	cancel()
	requireUnexplained(t, await(t, "the waiter", waiting).err, context.Canceled)
	require.Equal(t, before, cluster.Calls("Range"))
	unlock(t, h)
}

// There is nobody to ask.
func TestATimedOutWaitInABlackHoleReturnsAllTheSame(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, onlooker *clientv3.Client) {
		lock(t, etcdlock.NewMutex(virtualSession(t, onlooker), "orders"))
		client, link := cluster.Link(t)
		m := etcdlock.NewMutex(virtualSession(t, client), "orders")
		defer link.Heal()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		waiting := locking(ctx, m)
		awaitTickets(t, onlooker, 2)
		link.Blackhole()
		requireUnexplained(t, await(t, "the time-out", waiting).err, context.DeadlineExceeded)
	})
}
