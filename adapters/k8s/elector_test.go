package k8slock_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

var blackHoles = flag.Int("blackholes", 3, "how many times a leader is cut off")

func TestTheFirstLeadsAndHandsOver(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := newHistory()
	all := startAll(t, cluster, 3, h, asConfigured)
	for n := range 3 {
		leader := h.leader(t, n)
		t.Logf("term %d began at %v", n, leader.from)
		inLine(t, cluster.Client(t), 2-n)
		all[leader.identity].stop()
		terms := h.await(t, func(terms []term) bool { return !terms[n].until.IsZero() })
		require.Equal(t, leader.identity, terms[n].identity)
	}
	require.Zero(t, h.overlap())
	require.Equal(t, 3, h.len())
}

func TestClientGoIsToldWhoLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	leader := newLock(t, cluster, "a")
	lead(t, leader)
	standby := newLock(t, cluster, "b")
	told := make(chan string, 9)
	config, err := standby.Config(t.Context(), leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
		OnNewLeader: func(identity string) { told <- identity },
	})
	require.NoError(t, err)
	elector, err := leaderelection.NewLeaderElector(config)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { elector.Run(ctx) })
	require.Equal(t, "a", <-told)
	require.Equal(t, "a", elector.GetLeader())
	require.False(t, elector.IsLeader())
	require.NoError(t, leader.Update(t.Context(), record("")))
	require.Equal(t, "b", <-told)
	require.True(t, elector.IsLeader())
	require.NoError(t, elector.Check(0))

	term, ok := standby.Term()
	require.True(t, ok)
	require.NoError(t, term.Resign(t.Context()))
	running.Wait()
	require.False(t, elector.IsLeader(), "it has learned of the end")
	require.Empty(t, <-told)
	stop()
}

// With the timings of the Lock client-go stops in time by itself, without the contexts of Wrap.
func TestNeverTwoLeadersOverBlackHoles(t *testing.T) {
	t.Parallel()
	overlap := cutOff(t, asConfigured, time.Second, func(_ time.Duration, cut int) bool { return cut == *blackHoles })
	require.Zero(t, overlap)
}

// defaults are client-go's proportions: 15 s, 10 s, 2 s.
func defaults(config leaderelection.LeaderElectionConfig) leaderelection.LeaderElectionConfig {
	config.RenewDeadline = config.LeaseDuration * 10 / 15
	config.RetryPeriod = config.LeaseDuration * 2 / 15
	return config
}

// This is why there are Timings.
func TestTwoLeadWithTheProportionsOfClientGo(t *testing.T) {
	t.Parallel()
	configure := func(ctx context.Context, l *k8slock.Lock, c leaderelection.LeaderCallbacks) (leaderelection.LeaderElectionConfig, error) {
		config, err := asConfigured(ctx, l, c)
		return defaults(config), err
	}
	const byDefault = 300 * time.Millisecond // a tenth of the TTL
	cutOff(t, configure, byDefault, func(overlap time.Duration, cut int) bool { return overlap > 0 && cut >= *blackHoles/3 })
}

func TestWrapStopsTheWorkInTimeWithTheProportionsOfClientGo(t *testing.T) {
	t.Parallel()
	configure := func(ctx context.Context, l *k8slock.Lock, c leaderelection.LeaderCallbacks) (leaderelection.LeaderElectionConfig, error) {
		config, err := l.Config(ctx, c)
		return defaults(config), err
	}
	overlap := cutOff(t, configure, time.Second, func(_ time.Duration, cut int) bool { return cut == *blackHoles })
	require.Zero(t, overlap)
}

// cutOff puts one leader after the other into a black hole, until enough. It returns how long two have led at most.
func cutOff(t *testing.T, configure configure, margin time.Duration, enough func(overlap time.Duration, cut int) bool) time.Duration {
	cluster := embedtest.Start(t)
	h := newHistory()
	all := startAll(t, cluster, 2, h, configure, session.WithTTL(3*time.Second), session.WithMargin(margin))
	var gaps []time.Duration
	for cut := 1; ; cut++ {
		leader := h.leader(t, cut-1)
		inLine(t, cluster.Client(t), 1)
		all[leader.identity].link.Blackhole()
		next := h.leader(t, cut) // the last has stopped
		gaps = append(gaps, next.from.Sub(h.ended(cut-1)))
		all[leader.identity].link.Heal()
		if enough(h.overlap(), cut) {
			break
		}
	}
	for _, r := range all {
		r.stop()
	}
	slices.Sort(gaps)
	t.Logf("%d black holes, from the end of a term to the next: from %v to %v, median %v",
		len(gaps), gaps[0], gaps[len(gaps)-1], gaps[len(gaps)/2])
	return h.overlap()
}
