package otellock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	otellock "github.com/etcdlock/locks/adapters/otel"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab has instruments, and reads what they measure.
type lab struct {
	*otellock.Instruments
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer *trace.TracerProvider
}

func newLab(t *testing.T, opts ...otellock.Option) lab {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	i, err := otellock.New(append(opts,
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))), otellock.WithTracerProvider(tracer))...)
	require.NoError(t, err)
	return lab{i, reader, spans, tracer}
}

func keep(t *testing.T, client *clientv3.Client, opts ...session.Option) *session.Keeper {
	k := session.Keep(client, append(opts, session.WithTTL(2*time.Second))...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

func labels(set attribute.Set) string {
	var values []string
	for _, kv := range set.ToSlice() {
		values = append(values, kv.Value.AsString())
	}
	return strings.Join(values, " ")
}

// values returns those of all series of an instrument, with the counts of histograms.
func (l lab) values(t *testing.T, name string) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, l.reader.Collect(t.Context(), &all))
	found := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					found[labels(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					found[labels(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					found[labels(p.Attributes)] = float64(p.Count)
				}
			}
		}
	}
	return found
}

func TestLocksAreCountedAndWaitsAreSpans(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	l := newLab(t, otellock.WithNames("orders"))
	k := keep(t, cluster.Client(t))
	hooks := etcdlock.WithHooks(l.Hooks())
	orders := etcdlock.NewMutex(k, "orders", hooks)
	h, err := orders.Lock(t.Context())
	require.NoError(t, err)
	_, err = orders.TryLock(t.Context())
	require.ErrorIs(t, err, etcdlock.ErrBusy)

	ctx, parent := l.tracer.Tracer("test").Start(t.Context(), "request")
	waiting := make(chan error, 1)
	go func() {
		h, err := orders.Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		waiting <- err
	}()
	require.Eventually(t, func() bool { return l.values(t, "etcdlock.waiting")["mutex orders"] == 1 }, time.Minute, time.Millisecond)
	briefly, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = orders.Lock(briefly)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, <-waiting)
	parent.End()

	term, err := etcdlock.NewElection(k, "leader", hooks).Campaign(t.Context(), "me")
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"other": 1}, l.values(t, "etcdlock.election.leading"))
	require.NoError(t, etcdlock.ForceRelease(t.Context(), cluster.Client(t), term.Key(), term.Token()))
	<-term.Done()
	require.Eventually(t, func() bool { return l.values(t, "etcdlock.lost")["election other"] == 1 }, time.Minute, time.Millisecond)

	require.Equal(t, map[string]float64{"mutex orders": 0, "election other": 0}, l.values(t, "etcdlock.waiting"))
	require.Equal(t, map[string]float64{"mutex orders": 0, "election other": 0}, l.values(t, "etcdlock.held"))
	require.Equal(t, map[string]float64{"other": 0}, l.values(t, "etcdlock.election.leading"))
	require.Equal(t, map[string]float64{"mutex orders": 2, "election other": 1}, l.values(t, "etcdlock.hold.duration"))
	require.Equal(t, map[string]float64{
		"mutex orders": 2, "busy mutex orders": 1, "timeout mutex orders": 1, "election other": 1,
	}, l.values(t, "etcdlock.wait.duration"))

	waits := map[codes.Code]int{}
	for _, s := range l.spans.Ended() {
		if s.Name() != "etcdlock wait" {
			continue
		}
		waits[s.Status().Code]++
		require.Equal(t, parent.SpanContext().SpanID(), s.Parent().SpanID())
		require.False(t, s.StartTime().After(s.EndTime()))
		attributes := attribute.NewSet(s.Attributes()...)
		for _, key := range []attribute.Key{"lock.kind", "lock.name", "lock.token"} {
			require.True(t, attributes.HasValue(key), key)
		}
		if s.Status().Code == codes.Error {
			holder, _ := attributes.Value("lock.holder")
			require.Contains(t, holder.AsString(), fmt.Sprint(":", os.Getpid(), " "))
			token, _ := attributes.Value("lock.holder.token")
			require.EqualValues(t, h.Token(), token.AsInt64())
			ahead, _ := attributes.Value("lock.ahead")
			require.Positive(t, ahead.AsInt64())
		}
	}
	require.Equal(t, map[codes.Code]int{codes.Unset: 1, codes.Error: 1}, waits)
}

func TestSessionsAreWatched(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	l := newLab(t)
	k := keep(t, client, l.SessionOptions()...)
	l.Watch(k)
	s, err := k.Session(t.Context())
	require.NoError(t, err)
	require.Positive(t, l.values(t, "etcdlock.session.remaining")[""])
	require.Equal(t, map[string]float64{"": s.TTL().Seconds()}, l.values(t, "etcdlock.session.ttl"))
	require.Equal(t, map[string]float64{"live": 0, "at risk": 0, "lost": 0, "closed": 0}, l.values(t, "etcdlock.session.changes"))
	require.Eventually(t, func() bool { return l.values(t, "etcdlock.session.renewal.duration")[""] > 0 }, time.Minute, time.Millisecond)
	link.Blackhole()
	<-s.Done()
	require.Eventually(t, func() bool { return l.values(t, "etcdlock.session.changes")["lost"] == 1 }, time.Minute, time.Millisecond)
	require.Zero(t, l.values(t, "etcdlock.session.remaining")[""])
	require.Less(t, l.values(t, "etcdlock.session.remaining.lowest")[""], 2.0)
	link.Heal()
}

// A hold is a span only if that is asked for, and not if it was long.
func TestShortHoldsAreSpansIfThatIsAskedFor(t *testing.T) {
	t.Parallel()
	for longest, want := range map[time.Duration][]string{
		0:           nil,
		time.Minute: {"etcdlock hold, Unset", "etcdlock hold, Error"},
	} {
		var opts []otellock.Option
		if longest > 0 {
			opts = append(opts, otellock.WithHoldSpans(longest))
		}
		l := newLab(t, opts...)
		hooks := l.Hooks()
		ctx, _ := l.tracer.Tracer("test").Start(t.Context(), "request")
		e := etcdlock.Event{Context: ctx, Kind: "mutex", Name: "orders", Token: 7}
		hooks.Released(etcdlock.Released{Event: e, Held: time.Second})
		hooks.Lost(etcdlock.Lost{Event: e, Held: time.Minute, Err: etcdlock.ErrLost})
		hooks.Released(etcdlock.Released{Event: e, Held: time.Minute + 1})
		var found []string
		for _, s := range l.spans.Ended() {
			found = append(found, s.Name()+", "+s.Status().Code.String())
		}
		require.Equal(t, want, found)
	}
}

// Nobody would find a span of a wait that is in no trace.
func TestWaitOutsideATraceIsNoSpan(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	hooks := l.Hooks()
	e := etcdlock.Event{Context: t.Context(), Kind: "mutex", Name: "orders"}
	hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
	require.Empty(t, l.spans.Ended())
	e.Context, _ = l.tracer.Tracer("test").Start(t.Context(), "request")
	hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
	require.Len(t, l.spans.Ended(), 1)
}

func TestStandbyIsShown(t *testing.T) {
	t.Parallel()
	l := newLab(t, otellock.WithNames("leader"))
	l.Hooks().Waiting(etcdlock.Waiting{Event: etcdlock.Event{Context: t.Context(), Kind: "election", Name: "leader"}})
	require.Equal(t, map[string]float64{"leader": 0}, l.values(t, "etcdlock.election.leading"))
	require.Equal(t, map[string]float64{"election leader": 0}, l.values(t, "etcdlock.lost"))
}

func TestAGrantAllocatesNothing(t *testing.T) {
	l := newLab(t, otellock.WithNames("orders"))
	hooks := l.Hooks()
	e := etcdlock.Event{Context: t.Context(), Kind: "mutex", Name: "orders"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		hooks.Waiting(etcdlock.Waiting{Event: e})
		hooks.Acquired(etcdlock.Acquired{Event: e, Queued: true})
		hooks.Released(etcdlock.Released{Event: e})
	}))
}

func BenchmarkHooks(b *testing.B) {
	i, err := otellock.New(otellock.WithNames("orders"), otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))))
	require.NoError(b, err)
	hooks := i.Hooks()
	e := etcdlock.Event{Context: b.Context(), Kind: "mutex", Name: "orders"}
	b.ReportAllocs()
	for b.Loop() {
		hooks.Acquired(etcdlock.Acquired{Event: e})
		hooks.Released(etcdlock.Released{Event: e})
	}
}
