package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// requests is what the cluster has been asked, renewals apart.
func requests(c *embedtest.Cluster) int64 {
	return c.Calls("Txn") + c.Calls("Range") + c.Calls("Watch")
}

// giveUpEarly makes calls for 2 s that give up after 30 ms, again and again.
func giveUpEarly(t *testing.T, locks []etcdlock.Locker) {
	end := time.Now().Add(2 * time.Second)
	var callers sync.WaitGroup
	for i := range 100 {
		callers.Go(func() {
			for n := i; time.Now().Before(end); n++ {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				if h, err := locks[n%len(locks)].Lock(ctx); err == nil {
					_ = h.Unlock(t.Context())
				}
				cancel()
				time.Sleep(time.Millisecond) // calls that are refused at once take no virtual time
			}
		})
	}
	callers.Wait()
}

// idleMinute returns what the cluster is asked within a minute.
func idleMinute(cluster *embedtest.Cluster) int64 {
	before := requests(cluster)
	time.Sleep(time.Minute)
	return requests(cluster) - before
}

// sixtyFour returns that many locks.
func sixtyFour(open func(name string, i int) etcdlock.Locker) (locks []etcdlock.Locker) {
	for i := range 64 {
		locks = append(locks, open(fmt.Sprint("lock", i), i))
	}
	return locks
}

// Calls that give up while etcd is slow leave nothing for it to do afterwards, and no keys.
func TestABrownOutDoesNotOutliveItsCause(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		sessions := virtualKeeper(t, client)
		locks := sixtyFour(func(name string, i int) etcdlock.Locker {
			return []etcdlock.Locker{
				etcdlock.NewMutex(sessions, name), etcdlock.NewRWMutex(sessions, name), etcdlock.NewSemaphore(sessions, name, 2),
				etcdlock.NewMulti(sessions, etcdlock.NewMutex(sessions, name), etcdlock.NewMutex(sessions, name+"'")),
			}[i%4]
		})
		lockAll := func() {
			for _, l := range locks {
				unlock(t, tryLock(t, l))
			}
		}
		lockAll()
		for _, begin := range []func() *embedtest.Fault{
			func() *embedtest.Fault { return cluster.Delay("Txn", 300*time.Millisecond) },
			func() *embedtest.Fault { return cluster.LoseReply("Txn") },
			func() *embedtest.Fault { return cluster.LoseRequest("Txn") },
		} {
			trouble := begin()
			giveUpEarly(t, locks)
			trouble.Heal()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Zero(t, idleMinute(cluster), "no caller is left")
			require.Empty(t, keysAt(t, client, "etcdlock/"))
			lockAll()
		}
		require.LessOrEqual(t, epochs(t, client), int64(1), "of one session")
	})
}

// epochs counts the keys of epochs.
func epochs(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	found, err := client.Get(within(t), "etcdlock/!/epoch/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return found.Count
}

// What the same calls leave while etcd has no space, or is corrupt, is little, and ends with that.
func TestABrownOutUnderAnAlarmLeavesLittleToDo(t *testing.T) {
	t.Parallel()
	for _, alarm := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		t.Run(alarm.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
				s := virtualSession(t, client)
				locks := sixtyFour(func(name string, _ int) etcdlock.Locker { return etcdlock.NewMutex(s, name) })
				require.NoError(t, cluster.RaiseAlarm(t.Context(), alarm))
				slow := cluster.Delay("Txn", 300*time.Millisecond)
				giveUpEarly(t, locks)
				slow.Heal()
				time.Sleep(20 * time.Second)
				require.LessOrEqual(t, idleMinute(cluster), int64((1+2048/64)*60/4), "an epoch and looks at the names every 8 s or so")
				require.NoError(t, cluster.DisarmAlarms(t.Context()))
				time.Sleep(20 * time.Second)
				require.Zero(t, idleMinute(cluster))
				h := lock(t, locks[0])
				require.True(t, strings.HasSuffix(h.Key(), "-0"), "the names are free: %s", h.Key())
				unlock(t, h)
			})
		})
	}
}

// What is never sent is in no doubt: it costs no epoch, and does not count among the calls that stop others.
func TestCallsWithoutAConnectionLeaveNothingBehind(t *testing.T) {
	cluster, _ := newCluster(t)
	client, network := cluster.Link(t)
	s := newSession(t, client)
	m := etcdlock.NewMutex(s, "orders")
	held := lock(t, etcdlock.NewMutex(s, "held"))
	unlock(t, lock(t, m))
	network.Cut()
	awaitState(t, client, connectivity.TransientFailure)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for range 300 {
		calls.Go(func() {
			_, err := m.Lock(short)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	calls.Wait()
	short, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := held.Txn(short).Then(clientv3.OpPut("key", "")).Commit()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, etcdlock.ErrOutcomeUnknown)
	require.Regexp(t, "connection error|no connection to", err.Error())
	require.NoError(t, s.Link().Admit(short), "others need not wait")

	network.Heal()
	unlock(t, lock(t, m))
	require.Zero(t, epochs(t, client))
}

// A caller may give up while the session waits for room; that call has sent nothing.
func TestACallBehindTooManyThatWereGivenUpEndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		s := virtualSession(t, client, session.WithTTL(time.Hour))
		silent := cluster.LoseRequest("Txn")
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				// Several names share no request with others, so each call has one in flight.
				_, err := allOf(s, fmt.Sprint("a", i), fmt.Sprint("b", i)).Lock(ctx)
				if err == nil {
					t.Error("locked without an answer")
				}
			})
		}
		callers.Wait()
		synctest.Wait() // until the session has asked for another epoch
		before := cluster.Calls("Txn")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := etcdlock.NewMutex(s, "orders").Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "given up")
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		require.Equal(t, before, cluster.Calls("Txn"))
		silent.Heal()
		unlock(t, lock(t, etcdlock.NewMutex(s, "orders")))
	})
}

// What is removed in the background does not wait for a removal whose answer is lost.
func TestALostAnswerDelaysNoOtherRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		s := virtualSession(t, client)
		var answers atomic.Int64
		cluster.Delay("Txn", time.Millisecond)
		cluster.LoseReply("Txn", embedtest.When(func(any) bool { return answers.Add(1)%30 == 0 }))
		permits := etcdlock.NewSemaphore(s, "permits", 8)
		end := time.Now().Add(5 * time.Second)
		var grants atomic.Int64
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					h, err := permits.Lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					grants.Add(1)
					ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
					_ = h.Unlock(ctx)
					cancel()
				}
			})
		}
		callers.Wait()
		require.Greater(t, grants.Load(), int64(500))
	})
}

// A release that etcd refuses for the moment is tried again every second or so.
func TestARefusedReleaseComesSoonAfterTheRefusalsEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		m := etcdlock.NewMutex(virtualSession(t, client), "orders")
		for _, refusal := range []error{rpctypes.ErrGRPCCorrupt, rpctypes.ErrGRPCNoSpace} {
			h := lock(t, m)
			refused := cluster.Refuse("Txn", refusal)
			require.Error(t, h.Unlock(t.Context()))
			time.Sleep(time.Minute)
			require.Equal(t, 1, tickets(t, client))
			refused.Heal()
			time.Sleep(2 * time.Second)
			require.Zero(t, tickets(t, client))
		}
	})
}

// A user of an existing prefix only has no place for an epoch. What its calls leave is bounded all the same.
func TestABrownOutWithoutAnEpochLeavesNoMoreThanASessionMayHave(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		cluster.Refuse("Txn", rpctypes.ErrPermissionDenied, embedtest.When(namesAnEpoch))
		cluster.Refuse("Range", rpctypes.ErrPermissionDenied, embedtest.When(namesAnEpoch))
		var ends atomic.Pointer[session.Change]
		sessions := virtualKeeper(t, client, session.WithOnChange(func(c session.Change) { ends.Store(&c) }))
		held := lock(t, etcdlock.NewMutex(sessions, "held", etcdlock.AtPrefix()))
		first := current(t, sessions)
		locks := sixtyFour(func(name string, _ int) etcdlock.Locker {
			return etcdlock.NewMutex(sessions, "ours/"+name, etcdlock.AtPrefix())
		})
		slow := cluster.Delay("Txn", 300*time.Millisecond)
		for !first.Link().Spent() { // of many thousand calls some hundred leave a doubt
			giveUpEarly(t, locks)
		}
		slow.Heal()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, idleMinute(cluster), int64(2*60/4*512/64), "looks at what two sessions may have")
		require.NoError(t, held.Err(), "a holder keeps the session that is being replaced")
		for _, l := range locks {
			unlock(t, tryLock(t, l))
		}
		unlock(t, held)
		synctest.Wait()
		require.ErrorIs(t, first.Err(), session.ErrLost)
		require.Equal(t, session.Lost, ends.Load().State)
		require.ErrorContains(t, ends.Load().Err, `must not write keys that begin with "ours/!/epoch/"`)
		leases, err := client.Leases(t.Context())
		require.NoError(t, err)
		require.Len(t, leases.Leases, 1, "that of the current session")
	})
}

// namesAnEpoch is about a request that reads, compares or writes the key of an epoch.
func namesAnEpoch(request any) bool { return strings.Contains(fmt.Sprint(request), "!/epoch/") }
