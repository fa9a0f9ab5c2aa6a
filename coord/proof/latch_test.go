package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
)

const arrivals = 40

// Arrivals count once each, however often and over whatever links they are reported; nobody passes before the last one;
// then all do.
func TestLatchInStorms(t *testing.T) { eachSeed(t, stormLatch, 3) }

func stormLatch(t *testing.T, seed uint64) {
	c := newCrowd(t, seed)
	over := make(chan struct{})
	var mu sync.Mutex
	var passed []int64 // revisions at which calls of Wait had returned
	counted := map[string]bool{}
	waits := func(p *caller) {
		for p.ctx.Err() == nil {
			if coord.NewLatch(p.sessions, "x", arrivals).Wait(p.ctx) == nil {
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, c.revision())
				return
			}
			pause(p.ctx, 500*time.Millisecond) // etcd refuses it
		}
	}
	arrives := func(p *caller) {
		l := coord.NewLatch(p.sessions, "x", arrivals)
		for p.ctx.Err() == nil {
			select {
			case <-over:
				return
			default:
			}
			id := fmt.Sprint("id/", rand.IntN(arrivals-1)) // the last one does not come yet
			short, cancel := context.WithTimeout(p.ctx, callLimit)
			if l.Arrive(short, id) == nil {
				c.good.Add(1)
				mu.Lock()
				counted[id] = true
				mu.Unlock()
			}
			cancel()
			pause(p.ctx, 30*time.Millisecond)
		}
	}
	c.behave = func(p *caller) {
		var calling sync.WaitGroup
		calling.Go(func() { waits(p) })
		calling.Go(func() { arrives(p) })
		calling.Wait()
	}
	c.storm()
	close(over)
	quiet := coord.NewLatch(keepQuiet(t, c.client), "x", arrivals)
	for i := range arrivals - 1 {
		require.NoError(t, quiet.Arrive(t.Context(), fmt.Sprint("id/", i)))
	}
	ids, err := quiet.Arrived(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, arrivals-1)
	mu.Lock()
	require.Empty(t, passed, "calls of Wait have returned before the last arrival")
	mu.Unlock()
	require.NoError(t, quiet.Arrive(t.Context(), "the last"))
	require.NoError(t, quiet.Wait(t.Context()))

	puts, opened := map[string]int{}, int64(0)
	for _, change := range c.finish() {
		for _, e := range change.Events {
			if id, ok := strings.CutPrefix(string(e.Kv.Key), "etcdlock/x!/latch/arrived/"); ok {
				require.Equal(t, clientv3.EventTypePut, e.Type)
				if puts[id]++; len(puts) == arrivals && opened == 0 {
					opened = e.Kv.ModRevision
				}
			}
		}
	}
	require.Len(t, puts, arrivals)
	for id, n := range puts {
		require.Equal(t, 1, n, id)
	}
	for id := range counted {
		require.Contains(t, puts, strings.ReplaceAll(id, "/", "%2F"))
	}
	require.GreaterOrEqual(t, len(passed), len(c.present), "a caller has not passed")
	for _, revision := range passed {
		require.GreaterOrEqual(t, revision, opened)
	}
}
