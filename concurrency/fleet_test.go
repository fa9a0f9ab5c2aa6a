package concurrency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/concurrency"
	"github.com/etcdlock/locks/embedtest"
)

// Programs of both packages stand in one line. Some end without a word while they hold the lock. No write is made beside
// the owner, and what Header says rises from owner to owner.
func TestAFleetOfBothPackagesExcludesItself(t *testing.T) {
	t.Parallel()
	const programs, turns, stock = 6, 8, "stock"
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var tokens []int64
	var working sync.WaitGroup
	for i := range programs {
		k := []kit{ours, etcds}[i%2]
		random := rand.New(rand.NewPCG(uint64(i), 0))
		working.Go(func() {
			for turn := range turns {
				client, err := cluster.NewClient()
				if err != nil {
					t.Error(err)
					return
				}
				err = oneTurn(ctx, k, client, func(m mutex) error {
					mu.Lock()
					tokens = append(tokens, m.Header().Revision)
					mu.Unlock()
					return count(ctx, client, m, stock)
				}, turn%4 == 3 && random.IntN(2) == 0)
				if err != nil {
					t.Errorf("program %d, turn %d: %v", i, turn, err)
				}
			}
		})
	}
	working.Wait()
	answer, err := cluster.Client(t).Get(ctx, stock)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(programs*turns), string(answer.Kvs[0].Value), "a write was lost")
	require.Len(t, tokens, programs*turns)
	require.IsIncreasing(t, tokens)
}

// oneTurn runs use under the lock. A program that crashes leaves the lock to its lease.
func oneTurn(ctx context.Context, k kit, client *clientv3.Client, use func(mutex) error, crash bool) error {
	defer func() { _ = client.Close() }()
	s, err := k.newSession(ctx, client, 2)
	if err != nil {
		return err
	}
	m := k.newMutex(s, "orders")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if err := use(m); err != nil {
		return err
	}
	if crash {
		s.Orphan()
		return nil
	}
	if err := m.Unlock(ctx); err != nil {
		return err
	}
	return s.Close()
}

// count adds one to a number in etcd, in two steps that only the lock keeps together.
func count(ctx context.Context, client *clientv3.Client, m mutex, key string) error {
	answer, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	n := 0
	if len(answer.Kvs) > 0 {
		if n, err = strconv.Atoi(string(answer.Kvs[0].Value)); err != nil {
			return err
		}
	}
	written, err := client.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpPut(key, strconv.Itoa(n+1))).Commit()
	if err == nil && !written.Succeeded {
		err = fmt.Errorf("not the owner")
	}
	return err
}

// Candidates of both packages follow each other, and observers of both see the same.
func TestAnElectionOfBothPackagesHasOneLeader(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here := stand{kit: ours, T: t, cluster: cluster, client: cluster.Client(t), ctx: ctx}
	there := stand{kit: etcds, T: t, cluster: cluster, client: cluster.Client(t), ctx: ctx}
	a, b := here.newElection(here.session(), "e"), there.newElection(there.session(), "e")
	require.NoError(t, a.Campaign(ctx, "ours"))
	seen := b.Observe(ctx)
	require.Equal(t, "ours", string(within(there, "the leader", seen).Kvs[0].Value))
	campaign := there.start(func() error { return b.Campaign(ctx, "theirs") })
	require.Equal(t, "ours", there.leader(b))
	require.NoError(t, a.Resign(ctx))
	require.NoError(t, within(there, "the campaign", campaign))
	require.Equal(t, "theirs", here.leader(a))
	require.Equal(t, "theirs", string(within(there, "the leader", seen).Kvs[0].Value))
	campaign = here.start(func() error { return a.Campaign(ctx, "ours again") })
	require.NoError(t, b.Resign(ctx))
	require.NoError(t, within(here, "the campaign", campaign))
	require.Equal(t, "ours again", there.leader(b))
}

// A user needs the permission to read and write the prefix, and no other.
func TestUsersOfAPrefixCampaignAndLock(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("secret", embedtest.User{
		Name: "user", Password: "123", Grants: []embedtest.Grant{embedtest.ReadWrite("/foo/")},
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, k := range map[string]kit{"here": ours, "etcd": etcds} {
		s := stand{kit: k, T: t, cluster: cluster, client: cluster.ClientAs(t, "user"), ctx: ctx}
		e, m := s.newElection(s.session(), "/foo/e"), s.newMutex(s.session(), "/foo/m")
		require.Equal(t, "nil nil nil nil", told(e.Campaign(ctx, "x"), m.Lock(ctx), m.Unlock(ctx), e.Resign(ctx)), name)
		refused := s.newMutex(s.session(), "/bar").Lock(ctx)
		require.Equal(t, "[etcdserver: permission denied]", told(refused), name)
	}
}

// A session whose requests vanish ends before the server can expire its lease.
func TestASessionInABlackHoleEndsBeforeItsKeysAreGone(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, link := cluster.Link(t)
	s, err := concurrency.NewSession(client, concurrency.WithTTL(4))
	require.NoError(t, err)
	m := concurrency.NewMutex(s, "a")
	require.NoError(t, m.Lock(ctx))
	link.Blackhole()
	within(stand{T: t, ctx: ctx}, "the end of the session", s.Done())
	answer, err := cluster.Client(t).Get(ctx, m.Key())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	require.Equal(t, concurrency.ErrSessionExpired, m.Unlock(ctx))
	link.Heal()
	require.NoError(t, s.Close())
}

// Goroutines that share a Locker exclude each other, and other processes.
func TestALockerExcludesGoroutines(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	n := 0
	var working sync.WaitGroup
	for range 2 {
		s, err := concurrency.NewSession(cluster.Client(t))
		require.NoError(t, err)
		defer s.Close()
		l := concurrency.NewLocker(s, "a")
		for range 4 {
			working.Go(func() {
				for range 5 {
					l.Lock()
					n++
					l.Unlock()
				}
			})
		}
	}
	working.Wait()
	require.Equal(t, 40, n)
	s, err := concurrency.NewSession(cluster.Client(t))
	require.NoError(t, err)
	l := concurrency.NewLocker(s, "a")
	require.PanicsWithValue(t, concurrency.ErrLockReleased, l.Unlock)
	require.NoError(t, s.Close())
	require.PanicsWithValue(t, concurrency.ErrSessionExpired, l.Lock)
}

// A release that is not confirmed can be asked for again.
func TestAReleaseWithoutAnAnswerIsConfirmedByTheNext(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s, err := concurrency.NewSession(client)
	require.NoError(t, err)
	defer s.Close()
	m, e := concurrency.NewMutex(s, "a"), concurrency.NewElection(s, "e")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, e.Campaign(t.Context(), "x"))
	late := cluster.Hold("Txn")
	require.Equal(t, context.DeadlineExceeded, m.Unlock(briefly(t)))
	require.Equal(t, context.DeadlineExceeded, e.Resign(briefly(t)))
	require.NotEmpty(t, m.Key())
	require.NotEmpty(t, e.Key())
	late.Heal()
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, e.Resign(t.Context()))
	require.Equal(t, concurrency.ErrLockReleased, m.Unlock(t.Context()))
	require.Empty(t, e.Key())
	answer, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, answer.Count)
}
