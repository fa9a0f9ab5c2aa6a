package metricscheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// family is what a dashboard depends on.
type family struct {
	kind    string
	help    string
	labels  []string // of each series, with their values
	buckets []float64
}

// families returns those of a gatherer. Labels that name OpenTelemetry's scope are left out.
func families(t *testing.T, g prometheus.Gatherer) map[string]family {
	t.Helper()
	gathered, err := g.Gather()
	require.NoError(t, err)
	all := map[string]family{}
	for _, f := range gathered {
		found := family{kind: f.GetType().String(), help: f.GetHelp()}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if !strings.HasPrefix(l.GetName(), "otel_scope_") && l.GetValue() != "" { // an empty label is none
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			found.labels = append(found.labels, strings.Join(labels, " "))
			found.buckets = nil
			for _, b := range m.GetHistogram().GetBucket() {
				found.buckets = append(found.buckets, b.GetUpperBound())
			}
		}
		slices.Sort(found.labels)
		all[f.GetName()] = found
	}
	return all
}

// One dashboard serves both modules.
func TestBothModulesHaveTheSameMetrics(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var all []map[string]family
	for _, of := range []maker{byPrometheus, byOTel} {
		a, gatherer := of(t, "orders", "leader")
		k := session.Keep(cluster.Client(t), append(a.SessionOptions(), session.WithTTL(2*time.Second))...)
		a.Watch(k)
		_, err := k.Session(within(t))
		require.NoError(t, err)
		hooks := a.Hooks()
		for _, e := range []etcdlock.Event{
			{Kind: "mutex", Name: "orders"}, {Kind: "election", Name: "leader"}, {Kind: "read", Name: "customer 7"},
		} {
			e.Context = t.Context()
			hooks.Waiting(etcdlock.Waiting{Event: e})
			hooks.Failed(etcdlock.Failed{Event: e, Queued: true, Err: etcdlock.ErrClosed})
			hooks.Failed(etcdlock.Failed{Event: e, Err: etcdlock.ErrBusy})
			hooks.Acquired(etcdlock.Acquired{Event: e})
			hooks.Lost(etcdlock.Lost{Event: e, Err: etcdlock.ErrLost})
		}
		eventually(t, "a renewal", func() bool {
			return len(families(t, gatherer)["etcdlock_session_renewal_duration_seconds"].buckets) > 0
		})
		all = append(all, families(t, gatherer))
		require.NoError(t, k.Close(within(t)))
	}
	require.Len(t, all[0], 11)
	require.Equal(t, all[0], all[1])
}
