package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Scenarios M4, M5 and M6, at random. Everybody who gets permits says so in etcd with a guarded
// write, so that etcd's history tells who was there at which revision. Whoever says so must
// have had room behind all who joined before it and were still there, waiting or not: then
// there are never more permits in use than there are, and nobody has overtaken.
func TestPermitsAreNeverExceededNorOvertakenAtAnyRevision(t *testing.T) {
	t.Parallel()
	const size, users, turns = 5, 6, 12
	cluster := embedtest.Start(t)
	ctx := within(t)
	var working sync.WaitGroup
	for seed := range uint64(users) {
		u := &permitUser{
			random: rand.New(rand.NewPCG(seed, 4)),
			client: cluster.Client(t), keeper: session.Keep(cluster.Client(t), session.WithTTL(longTTL)), size: size,
		}
		t.Cleanup(func() { _ = u.keeper.Close(context.Background()) })
		u.pool = etcdlock.NewSemaphore(u.keeper, "pool", size)
		working.Go(func() {
			for range turns {
				if err := u.turn(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	client := cluster.Client(t)
	require.Eventually(t, func() bool { return len(keysAt(t, client, "etcdlock/")) == 0 }, patience, waitABit)
	entries := checkPermits(t, client, size)
	require.Greater(t, entries, users*turns/3)
}

type permitUser struct {
	random *rand.Rand
	client *clientv3.Client
	keeper *session.Keeper
	pool   *etcdlock.Semaphore
	size   int64
}

func (u *permitUser) turn(ctx context.Context) error {
	n := 1 + u.random.Int64N(u.size)
	var h *etcdlock.Hold
	var err error
	switch u.random.IntN(4) {
	case 0:
		h, err = u.pool.TryAcquire(ctx, n)
	case 1:
		short, cancel := context.WithTimeout(ctx, time.Duration(u.random.IntN(20))*time.Millisecond)
		h, err = u.pool.Acquire(short, n)
		cancel()
	default:
		h, err = u.pool.Acquire(ctx, n)
	}
	switch {
	case errors.Is(err, etcdlock.ErrBusy), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil
	case err != nil:
		return err
	}
	in := clientv3.OpPut("in/"+h.Key()[strings.LastIndex(h.Key(), "/")+1:], fmt.Sprint(int64(h.Token())))
	if _, err := h.Txn(ctx).Then(in).Commit(); err != nil {
		return err
	}
	if u.random.IntN(4) > 0 {
		return h.Unlock(ctx)
	}
	s, err := u.keeper.Session(ctx)
	if err != nil {
		return err
	}
	if _, err := u.client.Revoke(ctx, s.Lease()); err != nil { // a crash
		return err
	}
	if err := s.Renew(ctx); !errors.Is(err, etcdlock.ErrLost) {
		return fmt.Errorf("renewed after a crash: %w", err)
	}
	if err := h.Unlock(ctx); !errors.Is(err, etcdlock.ErrLost) {
		return fmt.Errorf("released after a crash: %w", err)
	}
	return nil
}

// checkPermits goes through etcd's history and returns how many have had permits.
func checkPermits(t *testing.T, client *clientv3.Client, size int64) (entries int) {
	t.Helper()
	last, err := client.Put(within(t), "end", "")
	require.NoError(t, err)
	const queue = "etcdlock/pool/p"
	line := make(map[string]int64) // create revisions by name
	weight := func(name string) int64 {
		n, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 16, 64)
		require.NoError(t, err)
		return n
	}
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	for response := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		require.NoError(t, response.Err())
		for _, e := range response.Events {
			key := string(e.Kv.Key)
			name, ticket := strings.CutPrefix(key, queue)
			if in, ok := strings.CutPrefix(key, "in/p"); ok && e.Type == clientv3.EventTypePut {
				entries++
				require.Equal(t, fmt.Sprint(line[in]), string(e.Kv.Value), "the ticket is there, and its revision is the token")
				sum := weight(in)
				for other, revision := range line {
					if revision < line[in] {
						sum += weight(other)
					}
				}
				require.LessOrEqual(t, sum, size, "at revision %d", e.Kv.ModRevision)
			}
			switch {
			case ticket && e.Type == clientv3.EventTypeDelete:
				delete(line, name)
			case ticket:
				line[name] = e.Kv.CreateRevision
			}
			if e.Kv.ModRevision == last.Header.Revision {
				return entries
			}
		}
	}
	require.FailNow(t, "the history has no end")
	return 0
}
