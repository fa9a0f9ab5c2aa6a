package proof_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leftFor is how long a key of a failed call may stay in a session that lives: what a lost request leaves
// is looked for every 10 s at most.
const leftFor = ttl + 20*time.Second

// calm requires that nothing is left when nobody does anything, that everybody gets everything then, and
// that nothing is left of the sessions when they are closed.
func (s *storm) calm(t *testing.T) {
	s.nothingLeft(t, "although sessions live and nobody holds anything")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	results := make(chan error, len(s.workers))
	for _, w := range s.workers {
		go func() { results <- w.everything(ctx) }()
	}
	for range s.workers {
		require.NoError(t, <-results, "after the storm\n"+s.account())
	}
	s.nothingLeft(t, "after everybody has had everything")
	for _, w := range s.workers {
		require.NoError(t, w.life.Load().sessions.Close(ctx), s.account())
	}
	for _, l := range s.retired {
		_ = l.sessions.Close(ctx) // its client is closed
	}
	require.Eventually(t, func() bool {
		leases, err := s.admin.Leases(ctx)
		return err == nil && len(leases.Leases) == 0
	}, 30*time.Second, 50*time.Millisecond, "leases are left\n"+s.account())
	for _, l := range s.lives() {
		require.Eventually(t, l.counts.even, 10*time.Second, 10*time.Millisecond, "hooks have not told of every end, or twice: %+v\n%s", l.counts, s.account())
	}
}

// lives are all that have been.
func (s *storm) lives() []*life {
	lives := slices.Clone(s.retired)
	for _, w := range s.workers {
		lives = append(lives, w.life.Load())
	}
	return lives
}

// nothingLeft requires that all tickets vanish.
func (s *storm) nothingLeft(t *testing.T, when string) {
	t.Helper()
	for began := time.Now(); ; wait(t.Context(), 20*time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		left, err := s.admin.Get(ctx, "etcdlock/", clientv3.WithPrefix())
		cancel()
		require.NoError(t, err)
		left.Kvs = slices.DeleteFunc(left.Kvs, func(kv *mvccpb.KeyValue) bool { return !isTicket(string(kv.Key)) })
		if len(left.Kvs) == 0 {
			t.Logf("nothing is left after %v, %s", time.Since(began).Round(time.Millisecond), when)
			return
		}
		if time.Since(began) > leftFor {
			t.Fatalf("left %s: %v\n%s", when, left.Kvs, s.account())
		}
	}
}

// requireNoGoroutines requires that none of the library's is left.
func requireNoGoroutines(t *testing.T) {
	t.Helper()
	var left []string
	require.Eventually(t, func() bool {
		left = stacks("locks/session.", "locks/internal/", "locks/fairqueue.", "locks/etcdlock.")
		return len(left) == 0
	}, 10*time.Second, 100*time.Millisecond, "goroutines are left")
	require.Empty(t, left)
}

// closeClients closes all there have been, also after a failure.
func (s *storm) closeClients() {
	for _, w := range s.workers {
		s.retire(w.life.Load())
	}
	for _, l := range s.retired {
		closeClient(l.client)
		l.link.Close()
	}
}
