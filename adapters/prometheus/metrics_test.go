package promlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	promlock "github.com/etcdlock/locks/adapters/prometheus"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns metrics, and a keeper with them.
func open(t *testing.T, client *clientv3.Client, names ...string) (*promlock.Metrics, *session.Keeper) {
	m := promlock.New(promlock.WithNames(names...))
	k := session.Keep(client, append(m.SessionOptions(), session.WithTTL(2*time.Second))...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	m.Watch(k)
	return m, k
}

// series returns the values of all series of a name, with the counts of histograms.
func series(t *testing.T, m *promlock.Metrics, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			found[strings.Join(labels, " ")] = value
		}
	}
	return found
}

func TestLocksAreCounted(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	m, k := open(t, cluster.Client(t), "orders")
	hooks := etcdlock.WithHooks(m.Hooks())
	orders := etcdlock.NewMutex(k, "orders", hooks)
	h, err := orders.Lock(t.Context())
	require.NoError(t, err)
	_, err = orders.TryLock(t.Context())
	require.ErrorIs(t, err, etcdlock.ErrBusy)

	waiting := make(chan error, 1)
	go func() {
		h, err := orders.Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		waiting <- err
	}()
	require.Eventually(t, func() bool { return series(t, m, "etcdlock_waiting")["mutex orders"] == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, map[string]float64{"mutex orders": 1}, series(t, m, "etcdlock_held"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = orders.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, <-waiting)

	reader, err := etcdlock.NewRWMutex(k, "customer 7", hooks).RLock(t.Context())
	require.NoError(t, err)
	term, err := etcdlock.NewElection(k, "leader", hooks).Campaign(t.Context(), "me")
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"other": 1}, series(t, m, "etcdlock_election_leading"))
	require.NoError(t, etcdlock.ForceRelease(t.Context(), cluster.Client(t), reader.Key(), reader.Token()))
	<-reader.Done()
	require.Eventually(t, func() bool { return series(t, m, "etcdlock_lost_total")["read other"] == 1 }, time.Minute, time.Millisecond)
	require.Error(t, reader.Unlock(t.Context()))
	require.NoError(t, term.Resign(t.Context()))

	require.Equal(t, map[string]float64{"mutex orders": 0, "read other": 0, "election other": 0}, series(t, m, "etcdlock_held"))
	require.Equal(t, map[string]float64{"mutex orders": 0, "read other": 0, "election other": 0}, series(t, m, "etcdlock_waiting"))
	require.Equal(t, map[string]float64{"mutex orders": 0, "read other": 1, "election other": 0}, series(t, m, "etcdlock_lost_total"))
	require.Equal(t, map[string]float64{"other": 0}, series(t, m, "etcdlock_election_leading"))
	require.Equal(t, map[string]float64{"mutex orders": 2, "read other": 1, "election other": 1}, series(t, m, "etcdlock_hold_duration_seconds"))
	require.Equal(t, map[string]float64{
		" mutex orders": 2, "busy mutex orders": 1, "timeout mutex orders": 1, " read other": 1, " election other": 1,
	}, series(t, m, "etcdlock_wait_duration_seconds"))
}

func TestSessionsAreWatched(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	m, k := open(t, client)
	require.Equal(t, map[string]float64{"": 0}, series(t, m, "etcdlock_session_remaining_seconds"), "no session yet")
	s, err := k.Session(t.Context())
	require.NoError(t, err)
	left := series(t, m, "etcdlock_session_remaining_seconds")[""]
	require.Positive(t, left)
	require.LessOrEqual(t, left, 2.0)
	require.Equal(t, map[string]float64{"": s.TTL().Seconds()}, series(t, m, "etcdlock_session_ttl_seconds"))
	require.Equal(t, map[string]float64{"live": 0, "at risk": 0, "lost": 0, "closed": 0}, series(t, m, "etcdlock_session_changes_total"))
	require.Eventually(t, func() bool { return series(t, m, "etcdlock_session_renewal_duration_seconds")[""] > 0 }, time.Minute, time.Millisecond)
	link.Blackhole()
	<-s.Done()
	require.Eventually(t, func() bool { return series(t, m, "etcdlock_session_changes_total")["lost"] == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, map[string]float64{"": 0}, series(t, m, "etcdlock_session_remaining_seconds"))
	require.Less(t, series(t, m, "etcdlock_session_remaining_lowest_seconds")[""], left, "what is over is still seen")
	require.Equal(t, map[string]float64{"": s.TTL().Seconds()}, series(t, m, "etcdlock_session_ttl_seconds"))
	link.Heal()
}

// A standby has a series, so that an election without a leader has one.
func TestStandbyIsShown(t *testing.T) {
	t.Parallel()
	for _, status := range []bool{true, false} {
		var opts []promlock.Option
		names := []string{"etcdlock_election_leading"}
		if status {
			opts = append(opts, promlock.WithLeaderElectionStatus())
			names = append(names, "leader_election_master_status")
		}
		m := promlock.New(append(opts, promlock.WithNames("leader"))...)
		hooks := m.Hooks()
		e := etcdlock.Event{Kind: "election", Name: "leader"}
		expect := func(want float64) {
			for _, name := range names {
				require.Equal(t, map[string]float64{"leader": want}, series(t, m, name))
			}
		}
		hooks.Waiting(etcdlock.Waiting{Event: e})
		expect(0)
		hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
		expect(1)
		hooks.Lost(etcdlock.Lost{Event: e})
		expect(0)
		require.Equal(t, status, len(series(t, m, "leader_election_master_status")) > 0)
	}
}

// Names of metrics and labels are what Prometheus advises.
func TestMetricsAreWellNamed(t *testing.T) {
	t.Parallel()
	m := promlock.New(promlock.WithNames("orders"), promlock.WithLeaderElectionStatus())
	hooks := m.Hooks()
	e := etcdlock.Event{Kind: "election", Name: "orders"}
	hooks.Acquired(etcdlock.Acquired{Event: e})
	hooks.Lost(etcdlock.Lost{Event: e, Err: etcdlock.ErrLost})
	problems, err := testutil.CollectAndLint(m)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// Names that nobody listed make no series, however many there are.
func TestNamesMakeNoSeriesUnlessListed(t *testing.T) {
	t.Parallel()
	m := promlock.New(promlock.WithNames("orders"))
	hooks := m.Hooks()
	var working sync.WaitGroup
	for i := range 100 {
		working.Go(func() {
			for _, name := range []string{"orders", fmt.Sprint("customer ", i)} {
				e := etcdlock.Event{Kind: "mutex", Name: name}
				hooks.Waiting(etcdlock.Waiting{Event: e})
				hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
				hooks.Released(etcdlock.Released{Event: e})
			}
		})
	}
	working.Wait()
	require.Equal(t, map[string]float64{"mutex orders": 100, "mutex other": 100}, series(t, m, "etcdlock_hold_duration_seconds"))
	require.Equal(t, map[string]float64{"mutex orders": 0, "mutex other": 0}, series(t, m, "etcdlock_waiting"))
}

func TestAGrantAllocatesNothing(t *testing.T) {
	m := promlock.New(promlock.WithNames("orders"))
	hooks := m.Hooks()
	e := etcdlock.Event{Kind: "mutex", Name: "orders"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		hooks.Waiting(etcdlock.Waiting{Event: e})
		hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
		hooks.Released(etcdlock.Released{Event: e})
	}))
}

func BenchmarkHooks(b *testing.B) {
	hooks := promlock.New(promlock.WithNames("orders")).Hooks()
	e := etcdlock.Event{Kind: "mutex", Name: "orders"}
	b.ReportAllocs()
	for b.Loop() {
		hooks.Acquired(etcdlock.Acquired{Event: e})
		hooks.Released(etcdlock.Released{Event: e})
	}
}
