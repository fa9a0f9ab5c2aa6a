package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// BenchmarkFailOver is from the call of Resign until the Campaign of the only one who waits
// returns, next to the same with etcd's election, and with a Mutex of ours, by turns.
// ratio-mutex must not be above 2.
func BenchmarkFailOver(b *testing.B) {
	onEach(b, deployments, func(b *testing.B, cluster *embedtest.Cluster) {
		type side struct {
			name string
			all  []contender
		}
		sides := []side{
			{"etcd", newContenders(b, cluster, theirCandidate, 2, "failover")},
			{"mutex", newContenders(b, cluster, newOurs, 2, "failover-mutex")},
			{"ours", newContenders(b, cluster, ourCandidate, 2, "failover")},
		}
		figures := map[string][]float64{}
		for b.Loop() {
			for _, s := range sides {
				figures[s.name] = append(figures[s.name], microseconds(failOver(b, cluster, s.all)))
			}
		}
		b.ReportMetric(0, "ns/op")
		ours := median(figures["ours"])
		for _, s := range sides {
			b.ReportMetric(median(figures[s.name]), s.name+"-µs")
			if s.name != "ours" {
				b.ReportMetric(ours/median(figures[s.name]), "ratio-"+s.name)
			}
		}
	})
}

// failOver has the first of two hand over to the second, which waits with a watch.
func failOver(b *testing.B, cluster *embedtest.Cluster, all []contender) time.Duration {
	release, err := all[0].lock(b.Context())
	require.NoError(b, err)
	before := cluster.Calls("Watch")
	type won struct {
		at      time.Time
		release func(context.Context) error
		err     error
	}
	next := make(chan won, 1)
	go func() {
		release, err := all[1].lock(b.Context())
		next <- won{time.Now(), release, err}
	}()
	for cluster.Calls("Watch") == before {
		time.Sleep(100 * time.Microsecond)
	}
	// For the watch to stand; and etcd looks after watches that begin in the past, as its own
	// election's do, once in 100 ms only. A candidate usually waits for longer than that.
	time.Sleep(150 * time.Millisecond)
	start := time.Now()
	require.NoError(b, release(b.Context()))
	w := <-next
	require.NoError(b, w.err)
	require.NoError(b, w.release(b.Context()))
	return w.at.Sub(start)
}

func ourCandidate(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := session.New(ctx, c, session.WithTTL(benchTTL))
	if err != nil {
		return contender{}, err
	}
	e := etcdlock.NewElection(s, name)
	return contender{
		lock: func(ctx context.Context) (func(context.Context) error, error) {
			term, err := e.Campaign(ctx, "value")
			if err != nil {
				return nil, err
			}
			return term.Resign, nil
		},
		close: s.Close,
	}, nil
}

func theirCandidate(_ context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(benchTTL.Seconds())))
	if err != nil {
		return contender{}, err
	}
	e := concurrency.NewElection(s, "concurrency/"+name)
	return contender{
		lock: func(ctx context.Context) (func(context.Context) error, error) {
			return e.Resign, e.Campaign(ctx, "value")
		},
		close: func(context.Context) error { return s.Close() },
	}, nil
}
