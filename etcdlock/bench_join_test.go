package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// BenchmarkJoin has one more waiter join queues of several lengths. An operation lasts
// until it waits, that is until its watch stands; txn-µs is the transaction alone, which
// holds up everybody else's writes while etcd applies it.
func BenchmarkJoin(b *testing.B) {
	for _, waiting := range []int{0, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("queue=%d/nodes=1/fsync=false", waiting), func(b *testing.B) {
			cluster := embedtest.Start(b)
			for _, impl := range implementations {
				b.Run("impl="+impl.name, func(b *testing.B) {
					name := strings.ReplaceAll(b.Name(), "/", "-")
					holder := newContenders(b, cluster, impl, 1, name)[0]
					unlock, err := holder.lock(b.Context())
					require.NoError(b, err)
					fillQueue(b, cluster.Client(b), impl.name, name, waiting)

					client := cluster.Client(b)
					spy := newSpy(client)
					newcomer, err := impl.new(b.Context(), client, name)
					require.NoError(b, err)
					for b.Loop() {
						ctx, cancel := context.WithCancel(b.Context())
						ended := make(chan error, 1)
						go func() {
							_, err := newcomer.lock(ctx)
							ended <- err
						}()
						<-spy.watching
						b.StopTimer()
						cancel()
						require.ErrorIs(b, <-ended, context.Canceled)
						require.NoError(b, awaitLength(client, queueOf(impl.name, name), waiting+1))
						b.StartTimer()
					}
					b.StopTimer()
					b.ReportMetric(float64(spy.inTxn.Microseconds())/float64(spy.txns), "txn-µs")
					require.NoError(b, newcomer.close(context.Background()))
					require.NoError(b, unlock(context.Background()))
				})
			}
		})
	}
}

// queueOf is the prefix at which the contender of an implementation queues.
func queueOf(impl, name string) string {
	if impl == "etcd" {
		return "concurrency/" + name + "/"
	}
	return "etcdlock/" + name + "/"
}

// fillQueue puts n tickets into the queue, as sessions of their own would.
func fillQueue(b *testing.B, c *clientv3.Client, impl, name string, n int) {
	b.Helper()
	const batch = 100
	mark := ""
	if impl == "etcdlock" {
		mark = "x"
	}
	for i := 0; i < n; i += batch {
		// One transaction gives one create revision to all, which a real queue never
		// has, but the newcomer is behind all of them and only the length matters.
		var puts []clientv3.Op
		for j := i; j < min(i+batch, n); j++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%s%x", queueOf(impl, name), mark, j), ""))
		}
		_, err := c.Txn(b.Context()).Then(puts...).Commit()
		require.NoError(b, err)
	}
}

// awaitLength waits until the queue has n tickets: until the newcomer's has been removed.
func awaitLength(c *clientv3.Client, queue string, n int) error {
	for {
		left, err := c.Get(context.Background(), queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || left.Count == int64(n) {
			return err
		}
	}
}

// spy tells when a watch of its client stands, and times the client's transactions.
type spy struct {
	clientv3.KV
	clientv3.Watcher
	watching chan struct{}

	inTxn time.Duration
	txns  int
}

func newSpy(c *clientv3.Client) *spy {
	s := &spy{KV: c.KV, Watcher: c.Watcher, watching: make(chan struct{}, 10_000)}
	c.KV, c.Watcher = s, s
	return s
}

func (s *spy) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	events := s.Watcher.Watch(ctx, key, opts...)
	s.watching <- struct{}{}
	return events
}

func (s *spy) Close() error { return s.Watcher.Close() }

func (s *spy) Txn(ctx context.Context) clientv3.Txn { return &timedTxn{s.KV.Txn(ctx), s} }

type timedTxn struct {
	clientv3.Txn
	spy *spy
}

func (t *timedTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *timedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *timedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *timedTxn) Commit() (*clientv3.TxnResponse, error) {
	start := time.Now()
	answer, err := t.Txn.Commit()
	// The removal of an abandoned ticket nests its delete; only joins are of interest.
	if err == nil && len(answer.Responses) > 1 {
		t.spy.inTxn += time.Since(start)
		t.spy.txns++
	}
	return answer, err
}
