package proof_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

var goBack = flag.Int("goback", 2, "how often the cluster goes back in TestAClusterThatGoesBack")

// A cluster that goes back may let somebody in beside a holder of before, for as long as nobody has noticed. So
// it is left out what people believed then; what has to be is that calls return, that holders of
// what is gone are told, and that everything works in the end.
func TestAClusterThatGoesBack(t *testing.T) {
	seed := *oneSeed
	if seed == 0 {
		seed = rand.Uint64() | 1
	}
	random := rand.New(rand.NewPCG(seed, 0))
	members := 1 + 2*random.IntN(2)
	t.Logf("seed %d, %d members", seed, members)
	cluster := embedtest.Start(t, embedtest.WithSize(members))
	h := newHistory(t)
	var workers []*worker
	for i := range 3 {
		client, link := cluster.Link(t)
		workers = append(workers, newWorker(i, newLife(client, link), h, nil, seed))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*goBack)*time.Minute)
	defer cancel()
	var working sync.WaitGroup
	holders := make([]*holder, len(workers))
	for i, w := range workers {
		holders[i] = &holder{worker: w}
		working.Go(func() { holders[i].keep(ctx) })
		working.Go(func() { w.work(ctx, 6) })
	}
	for range *goBack {
		wait(ctx, time.Duration(random.IntN(1000))*time.Millisecond)
		grow(ctx, t, cluster)
		snapshot, err := cluster.Snapshot(ctx)
		require.NoError(t, err)
		wait(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
		var opts []embedtest.RestoreOption
		if random.IntN(2) == 0 {
			opts = append(opts, embedtest.NewClusterID())
		}
		if random.IntN(3) == 0 {
			require.NoError(t, cluster.Wipe(ctx, opts...))
		} else {
			require.NoError(t, cluster.Restore(ctx, snapshot, opts...))
		}
		h.back()
		for _, holder := range holders {
			holder.requireTold(t, cluster.Client(t))
		}
	}
	cancel()
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for _, w := range workers {
		w.calls.over.Store(h.now())
	}
	for _, w := range workers {
		require.NoError(t, w.calls.await(done))
	}
	for _, wrong := range h.wrong {
		require.NotContains(t, wrong, unexpected)
	}
	s := &storm{nemesis: &nemesis{cluster: cluster, admin: cluster.Client(t), workers: workers, history: h}, seed: seed}
	s.calm(t)
	requireNoGoroutines(t)
}

// grow makes the cluster older than one that was just restored: it elects leaders. The revision alone would not show
// that the cluster has gone back, since other clients raise it soon.
func grow(ctx context.Context, t *testing.T, cluster *embedtest.Cluster) {
	t.Helper()
	for client := cluster.Client(t); ; {
		answer, err := client.Get(ctx, "etcdlock/", clientv3.WithCountOnly())
		require.NoError(t, err)
		if answer.Header.RaftTerm >= 6 {
			return
		}
		if members := cluster.Members(); len(members) > 1 {
			i := slices.Index(members, cluster.Leader())
			require.NoError(t, cluster.MoveLeader(ctx, members[(i+1)%len(members)]))
			continue
		}
		cluster.Members()[0].Kill()
		require.NoError(t, cluster.Members()[0].Restart())
	}
}

// back forgets all beliefs: they need not exclude each other any more.
func (h *history) back() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.active)
}

// holder has one lock for as long as it can.
type holder struct {
	worker *worker

	mu   sync.Mutex
	hold *etcdlock.Hold
}

func (h *holder) keep(ctx context.Context) {
	for ctx.Err() == nil {
		hold, err := etcdlock.NewMutex(h.worker.life.Load().sessions, fmt.Sprint("steady ", h.worker.number)).Lock(ctx)
		if err != nil {
			continue
		}
		h.mu.Lock()
		h.hold = hold
		h.mu.Unlock()
		select {
		case <-hold.Done():
		case <-ctx.Done():
		}
		_ = hold.Unlock(context.Background())
	}
}

// requireTold requires that what is believed in is there.
func (h *holder) requireTold(t *testing.T, client *clientv3.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		hold := h.hold
		h.mu.Unlock()
		if hold == nil || hold.Err() != nil {
			return false
		}
		answer, err := client.Txn(t.Context()).If(hold.Guards()...).Commit()
		return err == nil && answer.Succeeded
	}, toldWithin, 50*time.Millisecond, "somebody believes in what is gone, or cannot have it again")
}
