package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/waits"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var (
	storm = flag.Duration("storm", 3*time.Second, "how long locks are taken in one order while deadlocks are looked for")
	seed  = flag.Uint64("seed", 0, "of the storm; 0: a random one")
)

// Processes take all kinds of locks in one order, several goroutines on each session, and lose their sessions now and then. There
// is never a deadlock, so none may be found. Requests that are sent together give several tickets one token.
func TestNoDeadlockIsSeenWhereThereIsNone(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-storm=%v -seed=%d", *storm, *seed)
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), *storm)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	var grants atomic.Int64
	for process := range uint64(4) {
		client := cluster.Client(t)
		for range 2 {
			random := rand.New(rand.NewPCG(*seed, process))
			process += 100
			running.Go(func() {
				for ctx.Err() == nil {
					takeInOrder(ctx, t, session.Keep(client, session.WithTTL(time.Minute)), random, &grants)
				}
			})
		}
	}
	client := cluster.Client(t)
	looks, most := 0, 0
	for ctx.Err() == nil {
		var queues []etcdlock.Queue
		var failure error
		for q, err := range etcdlock.InspectAll(ctx, client) {
			failure = err
			queues = append(queues, q)
		}
		if ctx.Err() != nil {
			break
		}
		require.NoError(t, failure)
		g := waits.New(queues)
		for _, cycle := range g.Cycles() {
			require.False(t, cycle.Certain, "seed %d: %v", *seed, cycle)
		}
		certain := 0
		for _, e := range g.Edges() {
			if e.Certain {
				certain++
			}
		}
		looks, most = looks+1, max(most, certain)
	}
	t.Logf("%d looks, %d grants, at most %d dependencies at once", looks, grants.Load(), most)
	require.Positive(t, most)
}

// takeInOrder takes locks on one session, from the first to the last, some of them under others.
func takeInOrder(ctx context.Context, t *testing.T, sessions *session.Keeper, random *rand.Rand, grants *atomic.Int64) {
	var takers sync.WaitGroup
	for range 3 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		takers.Go(func() {
			for range 5 {
				under(ctx, sessions, own, 0, grants)
			}
		})
	}
	if random.IntN(3) == 0 { // in the midst of it
		_ = sessions.Close(context.WithoutCancel(ctx))
	}
	takers.Wait()
	_ = sessions.Close(context.WithoutCancel(ctx))
}

// under takes a lock that comes at from in the order or later, and others under it.
func under(ctx context.Context, sessions *session.Keeper, random *rand.Rand, from int, grants *atomic.Int64) {
	const last = 6
	at := from + random.IntN(3)
	if at >= last || ctx.Err() != nil {
		return
	}
	name, next := fmt.Sprint(at), at+1
	var l etcdlock.Locker
	switch random.IntN(5) {
	case 0:
		l = etcdlock.NewMutex(sessions, name)
	case 1:
		l = etcdlock.NewRWMutex(sessions, name)
	case 2:
		l = etcdlock.NewRWMutex(sessions, name).RLocker()
	case 3:
		l = etcdlock.NewSemaphore(sessions, "permits "+name, 2)
	case 4:
		l = etcdlock.NewMulti(sessions, etcdlock.NewMutex(sessions, name), etcdlock.NewMutex(sessions, fmt.Sprint(next)))
		next++
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(200+random.IntN(1000))*time.Millisecond)
	defer cancel()
	h, err := l.Lock(limited)
	if err != nil {
		return
	}
	grants.Add(1)
	under(h.Context(), sessions, random, next, grants)
	_ = h.Unlock(context.WithoutCancel(ctx))
}
