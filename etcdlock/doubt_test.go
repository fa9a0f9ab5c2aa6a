package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// requests is what the cluster has been asked, renewals apart.
func requests(c *embedtest.Cluster) int64 {
	return c.Calls("Txn") + c.Calls("Range") + c.Calls("Watch")
}

// keysCreated lists the keys below a prefix that have ever been created.
func keysCreated(t *testing.T, client *clientv3.Client, prefix string) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keys := make(map[string]bool)
	events := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	end, err := client.Put(t.Context(), "the end of "+prefix, "")
	require.NoError(t, err)
	for response := range events {
		require.NoError(t, response.Err())
		for _, event := range response.Events {
			if event.Kv.ModRevision == end.Header.Revision {
				return keys
			}
			if key := string(event.Kv.Key); event.IsCreate() && strings.HasPrefix(key, prefix) {
				keys[key] = true
			}
		}
	}
	require.Fail(t, "the watch ended")
	return nil
}

// Calls that give up while etcd is slow leave nothing for it to do afterwards, and no keys.
func TestABrownOutDoesNotOutliveItsCause(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		sessions := virtualKeeper(t, client)
		locks := make([]etcdlock.Locker, 64)
		for i := range locks {
			switch name := fmt.Sprint("lock", i); i % 4 {
			case 0:
				locks[i] = etcdlock.NewMutex(sessions, name)
			case 1:
				locks[i] = etcdlock.NewRWMutex(sessions, name)
			case 2:
				locks[i] = etcdlock.NewSemaphore(sessions, name, 2)
			case 3:
				locks[i] = etcdlock.NewMulti(sessions, etcdlock.NewMutex(sessions, name), etcdlock.NewMutex(sessions, name+"'"))
			}
			h, err := locks[i].Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Unlock(t.Context()))
		}
		for _, begin := range []func() *embedtest.Fault{
			func() *embedtest.Fault { return cluster.Delay("Txn", 300*time.Millisecond) },
			func() *embedtest.Fault { return cluster.LoseReply("Txn") },
			func() *embedtest.Fault { return cluster.LoseRequest("Txn") },
		} {
			trouble := begin()
			end := time.Now().Add(5 * time.Second)
			var callers sync.WaitGroup
			for i := range 100 {
				callers.Go(func() {
					for n := i; time.Now().Before(end); n++ {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
						if h, err := locks[n%len(locks)].Lock(ctx); err == nil {
							_ = h.Unlock(t.Context())
						}
						cancel()
					}
				})
			}
			callers.Wait()
			trouble.Heal()
			time.Sleep(time.Minute)
			synctest.Wait()
			before := requests(cluster)
			time.Sleep(time.Minute)
			require.Equal(t, before, requests(cluster), "nobody calls anything")
			require.Empty(t, keysAt(t, client, "etcdlock/"))
			for _, l := range locks {
				h, err := l.TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock(t.Context()))
			}
		}
		epochs, err := client.Get(t.Context(), "etcdlock/!/epoch/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		require.LessOrEqual(t, epochs.Count, int64(1), "of one session")
	})
}

// R11: the connection was silent for several times the TTL, and the doubt has long been ended.
func TestAJoinThatArrivesLongAfterItsDoubtHasEndedCreatesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		s := virtualSession(t, client)
		m := etcdlock.NewMutex(s, "orders")
		held := cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5 * s.TTL())
		require.NoError(t, s.Err())
		applied := cluster.AppliedIndex()
		held.Heal()
		for cluster.AppliedIndex() == applied {
			time.Sleep(time.Millisecond)
		}
		require.Empty(t, keysCreated(t, client, "etcdlock/orders/"))
		unlock(t, lock(t, m))
	})
}

// Requests that are shared stay below etcd's limit of bytes, so no name is given up for its size.
func TestLargeValuesOfManyElectionsUseEachNameAgain(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	const elections = 100
	var candidates sync.WaitGroup
	errs := make(chan error, elections)
	for i := range elections {
		e := etcdlock.NewElection(s, fmt.Sprint("e", i))
		candidates.Go(func() {
			for n := range 4 {
				term, err := e.Campaign(within(t), strings.Repeat(fmt.Sprint(n), 60<<10))
				if err == nil {
					err = term.Resign(within(t))
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	candidates.Wait()
	require.Empty(t, errs)
	require.Len(t, keysCreated(t, client, "etcdlock/"), elections)
	require.Zero(t, tickets(t, client))
}

// A caller may give up while the session waits for room; that call has sent nothing.
func TestACallBehindTooManyThatWereGivenUpEndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		s := virtualSession(t, cluster.Client(t), session.WithTTL(time.Hour))
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
