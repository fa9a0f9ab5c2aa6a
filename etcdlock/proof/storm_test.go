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
	switch {
	case *oneSeed > 0:
		raise(t, *oneSeed)
	case *chaos > 0:
		for end := time.Now().Add(*chaos); time.Now().Before(end) && !t.Failed(); {
			seed := rand.Uint64() | 1
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { raise(t, seed) })
		}
	default: // at the same time, since most of it is waiting
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
				t.Parallel()
				raise(t, seed+1)
			})
		}
	}
}

// together reports whether several storms are raised at the same time. Then what is left of one of them cannot be told
// from what another one needs, and TestMain looks for it at the end.
func together() bool { return *oneSeed == 0 && *chaos == 0 }

// storm is a cluster, its clients, and what makes trouble.
type storm struct {
	*nemesis
	seed       uint64
	members    int
	passwords  bool
	goroutines int // of each worker
	happened   []string
}

// newStorm is all that a seed decides before anything happens.
func newStorm(t *testing.T, seed uint64) *storm {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &storm{seed: seed, members: 1 + 2*random.IntN(2), passwords: random.IntN(3) == 0, goroutines: 12}
	clients := 2 + random.IntN(4)
	if random.IntN(4) == 0 {
		s.goroutines, clients = 1+random.IntN(3), 6+random.IntN(8)
	}
	opts := []embedtest.Option{embedtest.WithSize(s.members)}
	if s.passwords {
		opts = append(opts, embedtest.WithAuth("open sesame"), embedtest.WithTokenTTL(time.Duration(1+random.IntN(3))*time.Second))
	}
	cluster := embedtest.Start(t, opts...)
	h := newHistory(t)
	w := newWitness(cluster, h)
	s.nemesis = &nemesis{cluster: cluster, admin: cluster.Client(t), history: h, witness: w, random: random}
	s.log = func(format string, args ...any) { s.happened = append(s.happened, fmt.Sprintf(format, args...)) }
	t.Cleanup(s.closeClients)
	for i := range clients {
		client, link, err := cluster.NewLink()
		if err != nil {
			t.Fatal(err)
		}
		s.workers = append(s.workers, newWorker(i, newLife(client, link), h, w, seed))
	}
	return s
}

func raise(t *testing.T, seed uint64) {
	s := newStorm(t, seed)
	t.Logf("seed %d: %d members, passwords %v, %d clients of %d goroutines", seed, s.members, s.passwords, len(s.workers), s.goroutines)
	ctx, cancel := context.WithTimeout(context.Background(), stormLasts)
	defer cancel()
	var working sync.WaitGroup
	for _, w := range s.workers {
		working.Go(func() { w.work(ctx, s.goroutines) })
	}
	s.torment(ctx)
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for _, w := range s.workers {
		w.calls.over.Store(s.history.now())
	}
	for _, w := range s.workers {
		if err := w.calls.await(done); err != nil {
			t.Fatalf("%v\n%s", err, s.account())
		}
	}
	s.check(t)
	s.calm(t)
	s.check(t)
	if !together() {
		requireNoGoroutines(t)
	}
}

// check compares what everybody believed with each other and with what happened in etcd.
func (s *storm) check(t *testing.T) {
	h := s.history
	s.witness.caughtUp(t)
	s.witness.lock()
	h.mu.Lock()
	began := time.Now()
	wrong := append(h.wrong, h.compare(s.witness.timeline)...)
	h.mu.Unlock()
	s.witness.mu.Unlock()
	if len(wrong) > 0 || t.Failed() {
		t.Fatalf("%s\n%s", strings.Join(wrong[:min(20, len(wrong))], "\n"), s.account())
	}
	compared := time.Since(began)
	result := h.explained(time.Minute)
	if result == porcupine.Illegal {
		t.Fatalf("no order of the operations explains the history; run with -visualise=dir -seed=%d\n%s", s.seed, s.account())
	}
	t.Logf("%d tickets, %d grants, %d transfers, refusals %v, %d troubles: %v; compared in %v, explained after %v", len(s.witness.tickets), len(h.grants),
		len(h.transfers), h.refusals, len(s.happened), result, compared, time.Since(began))
}

// account tells what went wrong in a storm.
func (s *storm) account() string {
	if s.witness == nil {
		return fmt.Sprintf("seed %d", s.seed)
	}
	var left []string
	for _, t := range s.witness.left() {
		left = append(left, fmt.Sprintf("%s, created at revision %d, %v", t.key, t.created, time.Duration(t.createdAt)))
	}
	return fmt.Sprintf("seed %d, what happened:\n%s\nwhat is there:\n%s", s.seed, strings.Join(s.happened, "\n"), strings.Join(left, "\n"))
}
