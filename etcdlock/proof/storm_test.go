package proof_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

var (
	chaos     = flag.Duration("chaos", 0, "how long to raise storms with random seeds; 0: a few with fixed ones")
	oneSeed   = flag.Uint64("seed", 0, "raise the storm of this seed only")
	visualise = flag.String("visualise", "", "directory for pages that show histories which violate something")
)

// stormLasts is for how long things go wrong in one storm. Longer ones take the checker
// longer than they tell more.
const stormLasts = 8 * time.Second

// Whatever goes wrong, nobody believes in a lock beside somebody else, and afterwards
// everything works and nothing is left.
func TestStorms(t *testing.T) {
	if *oneSeed > 0 {
		storm(t, *oneSeed)
		return
	}
	if *chaos == 0 {
		for _, seed := range []uint64{1, 2, 3, 4} {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { storm(t, seed) })
		}
		return
	}
	for end := time.Now().Add(*chaos); time.Now().Before(end) && !t.Failed(); {
		seed := rand.Uint64() | 1
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { storm(t, seed) })
	}
}

func storm(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	size := 1 + 2*random.IntN(2)
	cluster := embedtest.Start(t, embedtest.WithSize(size))
	h := newHistory(t)
	workers := make([]*worker, 3+random.IntN(14))
	for i := range workers {
		client, link := cluster.Link(t)
		workers[i] = newWorker(i, client, link, h, seed)
		if i%2 == 1 {
			workers[i].local = workers[i-1].local
		}
	}
	var happened []string
	n := &nemesis{cluster: cluster, admin: cluster.Client(t), workers: workers, history: h, random: random,
		log: func(format string, args ...any) { happened = append(happened, fmt.Sprintf(format, args...)) }}

	ctx, cancel := context.WithTimeout(context.Background(), stormLasts)
	defer cancel()
	var working sync.WaitGroup
	for _, w := range workers {
		working.Go(func() { w.work(ctx) })
	}
	n.torment(ctx)
	working.Wait()
	if wrong := h.violations(); len(wrong) > 0 || t.Failed() {
		t.Fatalf("%s\nwhat happened:\n%s", strings.Join(wrong, "\n"), strings.Join(happened, "\n"))
	}
	result := h.explained(time.Minute)
	if result == porcupine.Illegal {
		t.Fatalf("no order of the operations explains the history; run with -visualise=dir -seed=%d\nwhat happened:\n%s",
			seed, strings.Join(happened, "\n"))
	}
	t.Logf("%d members, %d clients, %d grants, %d lost, %d troubles: %v", size, len(workers), h.grants, h.losses, len(happened), result)
	calm(t, cluster, n.admin, workers)
}

// calm requires that everybody gets everything once it is over, and that nothing is left.
func calm(t *testing.T, cluster *embedtest.Cluster, admin *clientv3.Client, workers []*worker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	results := make(chan error, len(workers))
	for _, w := range workers {
		go func() { results <- w.everything(ctx) }()
	}
	for range workers {
		require.NoError(t, <-results, "after the storm")
	}
	for _, w := range workers {
		require.NoError(t, w.sessions.Close(ctx))
	}
	require.Eventually(t, func() bool {
		keys, err := admin.Get(ctx, "etcdlock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		leases, leaseErr := admin.Leases(ctx)
		if err != nil || leaseErr != nil {
			return false
		}
		left := 0
		for _, kv := range keys.Kvs {
			if !strings.Contains(string(kv.Key), "/!size/") {
				left++
			}
		}
		return left == 0 && len(leases.Leases) == 0
	}, 30*time.Second, 50*time.Millisecond, "keys or leases are left")
}
