package metricscheck

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var costs = flag.Bool("costs", false, "measure what hooks cost")

const (
	costRounds = 30
	costSlice  = 300 * time.Millisecond
	contenders = 8
)

// variant is a way to be watched.
type variant struct {
	name string
	opts []etcdlock.Option
}

func variants(t *testing.T) []variant {
	t.Helper()
	prom, _ := byPrometheus(t, "orders")
	otel, _ := byOTel(t, "orders")
	empty := &etcdlock.Hooks{}
	return []variant{
		{"none", nil},
		{"empty hooks", []etcdlock.Option{etcdlock.WithHooks(empty)}},
		{"Prometheus", []etcdlock.Option{etcdlock.WithHooks(prom.Hooks())}},
		{"OpenTelemetry", []etcdlock.Option{etcdlock.WithHooks(otel.Hooks())}},
	}
}

// slice has all lock and unlock as often as they can, and returns grants a second, and allocations for each.
func slice(t *testing.T, locks []*etcdlock.Mutex) (rate, allocations float64) {
	t.Helper()
	var grants atomic.Int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithTimeout(t.Context(), costSlice)
	defer cancel()
	var running sync.WaitGroup
	began := time.Now()
	for _, m := range locks {
		running.Go(func() {
			for ctx.Err() == nil {
				h, err := m.Lock(ctx)
				if err != nil {
					return
				}
				grants.Add(1)
				_ = h.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	n := float64(grants.Load())
	return n / took.Seconds(), float64(after.Mallocs-before.Mallocs) / n
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// The figures are for docs/measurements.md. Variants take turns, and each round is compared with itself.
func TestCostOfHooks(t *testing.T) {
	if !*costs {
		t.Skip("only with -costs")
	}
	cluster := embedtest.Start(t)
	for _, workload := range []struct {
		name string
		lock func(src session.Source, opts ...etcdlock.Option) *etcdlock.Mutex
		one  bool // session and lock for all
	}{
		{"hot lock", func(src session.Source, opts ...etcdlock.Option) *etcdlock.Mutex {
			return etcdlock.NewMutex(src, "orders", opts...)
		}, false},
		{"local hand-over", func(src session.Source, opts ...etcdlock.Option) *etcdlock.Mutex {
			return etcdlock.NewMutex(src, "orders", append(opts, etcdlock.WithLocalHandover(20*time.Millisecond, 1_000_000))...)
		}, true},
	} {
		var sources []session.Source
		for i := range contenders {
			if i > 0 && workload.one {
				sources = append(sources, sources[0])
				continue
			}
			k := session.Keep(cluster.Client(t))
			t.Cleanup(func() { require.NoError(t, k.Close(context.Background())) })
			sources = append(sources, k)
		}
		all := variants(t)
		rates, ratios, allocations := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
		locks := make([][]*etcdlock.Mutex, len(all))
		for i, v := range all {
			for j, src := range sources {
				if j > 0 && workload.one {
					locks[i] = append(locks[i], locks[i][0])
				} else {
					locks[i] = append(locks[i], workload.lock(src, v.opts...))
				}
			}
		}
		for round := range costRounds {
			for turn := range all {
				i := (round + turn) % len(all)
				rate, n := slice(t, locks[i])
				rates[i], allocations[i] = append(rates[i], rate), append(allocations[i], n)
			}
			for i := range all {
				ratios[i] = append(ratios[i], rates[i][round]/rates[0][round])
			}
		}
		for i, v := range all {
			fmt.Printf("%-16s %-14s %9.0f grants/s  ratio %.3f  %.1f allocations a grant\n",
				workload.name, v.name, median(rates[i]), median(ratios[i]), median(allocations[i]))
		}
	}
}
