package coord_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// There is a mark already.
func BenchmarkOnceDone(b *testing.B) {
	o := coord.NewOnce(keep(b, embedtest.Start(b).Client(b)), "x")
	work := func(context.Context, *etcdlock.Hold) (coord.Outcome, error) { return coord.Outcome{Value: "x"}, nil }
	_, err := o.Do(b.Context(), work)
	require.NoError(b, err)
	for b.Loop() {
		_, err := o.Do(b.Context(), work)
		require.NoError(b, err)
	}
}

// Callers come at once, and one of them works. The time from the mark until the last has returned is reported as well.
func BenchmarkOnceStampede(b *testing.B) {
	const callers = 500
	cluster := embedtest.Start(b)
	o := coord.NewOnce(keep(b, cluster.Client(b)), "x")
	var afterwards time.Duration
	for b.Loop() {
		var made time.Time
		together(callers, func(int) {
			_, err := o.Do(b.Context(), func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
				requireWaiting(b, cluster.Client(b), "etcdlock/x!/once/lock/", callers)
				made = time.Now()
				return coord.Outcome{Value: "x"}, nil
			})
			require.NoError(b, err)
		})
		afterwards += time.Since(made)
		require.NoError(b, o.Reset(b.Context()))
	}
	b.ReportMetric(float64(afterwards.Milliseconds())/float64(b.N), "ms-after-work/op")
}

// All arrivals come at once, and one caller waits for them.
func BenchmarkLatch(b *testing.B) {
	const arrivals = 100
	l := coord.NewLatch(keep(b, embedtest.Start(b).Client(b)), "x", arrivals)
	for b.Loop() {
		together(arrivals+1, func(i int) {
			if i == arrivals {
				require.NoError(b, l.Wait(b.Context()))
				return
			}
			require.NoError(b, l.Arrive(b.Context(), fmt.Sprint(i)))
		})
		require.NoError(b, l.Reset(b.Context()))
	}
}

// All parties come at once, and go on.
func BenchmarkBarrier(b *testing.B) {
	for _, parties := range []int{10, 100} {
		b.Run(fmt.Sprintf("parties=%d", parties), func(b *testing.B) {
			barrier := coord.NewBarrier(keep(b, embedtest.Start(b).Client(b)), "x", parties)
			for b.Loop() {
				together(parties, func(int) {
					_, err := barrier.Await(b.Context())
					require.NoError(b, err)
				})
			}
		})
	}
}

// together calls do in n goroutines, and waits for them.
func together(n int, do func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { do(i) })
	}
	running.Wait()
}
