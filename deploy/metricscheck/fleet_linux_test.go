package metricscheck

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	otellock "github.com/etcdlock/locks/adapters/otel"
	promlock "github.com/etcdlock/locks/adapters/prometheus"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// adapter is what both modules have.
type adapter interface {
	Hooks() *etcdlock.Hooks
	SessionOptions() []session.Option
	Watch(...*session.Keeper)
}

// byPrometheus returns an adapter and what collects it.
func byPrometheus(t testing.TB, names ...string) (adapter, prometheus.Gatherer) {
	t.Helper()
	m := promlock.New(promlock.WithNames(names...))
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	return m, registry
}

// byOTel is the same by OpenTelemetry's exporter.
func byOTel(t testing.TB, names ...string) (adapter, prometheus.Gatherer) {
	t.Helper()
	registry := prometheus.NewRegistry()
	export, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	provider := metric.NewMeterProvider(metric.WithReader(export))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	i, err := otellock.New(otellock.WithNames(names...), otellock.WithMeterProvider(provider))
	require.NoError(t, err)
	return i, registry
}

// instance is a process of a job, as far as Prometheus can see.
type instance struct {
	client *clientv3.Client
	link   *embedtest.Link
	keeper *session.Keeper
	hooks  etcdlock.Option
	prometheus.Gatherer
}

// changes returns how often a session of the instance has changed to a state.
func (i *instance) changes(t *testing.T, state string) int {
	t.Helper()
	families, err := i.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "etcdlock_session_changes_total" && l.GetName() == "state" && l.GetValue() == state {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return 0
}

// fleet is all that Prometheus scrapes.
type fleet struct{ targets map[string][]string }

func newFleet() *fleet { return &fleet{map[string][]string{}} }

func (f *fleet) serve(t *testing.T, job string, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	f.targets[job] = append(f.targets[job], strings.TrimPrefix(s.URL, "http://"))
}

type maker func(t testing.TB, names ...string) (adapter, prometheus.Gatherer)

// add has one more process in a job, whose locks "orders" and "leader" have labels.
func (f *fleet) add(t *testing.T, c *embedtest.Cluster, job string, of maker, opts ...session.Option) *instance {
	t.Helper()
	a, gatherer := of(t, "orders", "leader")
	i := &instance{hooks: etcdlock.WithHooks(a.Hooks()), Gatherer: gatherer}
	i.client, i.link = c.Link(t)
	opts = append([]session.Option{session.WithTTL(time.Minute)}, opts...) // which outlasts a busy machine
	i.keeper = session.Keep(i.client, append(a.SessionOptions(), opts...)...)
	a.Watch(i.keeper)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = i.keeper.Close(ctx)
	})
	f.serve(t, job, promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	return i
}

var exporterAddress = regexp.MustCompile(`http://(\S+)/metrics`)

// export has etcdlock exporter as a job.
func (f *fleet) export(t *testing.T, binary string, c *embedtest.Cluster, job string, flags ...string) {
	t.Helper()
	argv := append([]string{binary, "exporter", "--endpoints", strings.Join(c.Endpoints(), ","), "--http", "127.0.0.1:0"}, flags...)
	out := run(t, argv...)
	var address []string
	eventually(t, "exporter", func() bool {
		address = exporterAddress.FindStringSubmatch(out.String())
		return address != nil
	})
	f.targets[job] = append(f.targets[job], address[1])
}

func (i *instance) mutex(name string) *etcdlock.Mutex {
	return etcdlock.NewMutex(i.keeper, name, i.hooks)
}

func (i *instance) election(name string) *etcdlock.Election {
	return etcdlock.NewElection(i.keeper, name, i.hooks)
}

// work locks and unlocks until ctx ends.
func (i *instance) work(ctx context.Context, name string, held time.Duration) {
	for ctx.Err() == nil {
		h, err := i.mutex(name).Lock(ctx)
		if err != nil {
			continue
		}
		sleep(ctx, held)
		_ = h.Unlock(context.WithoutCancel(ctx))
	}
}

// try asks for a lock that others have, and gives it back if it gets it.
func (i *instance) try(ctx context.Context, name string, every time.Duration) {
	for ctx.Err() == nil {
		if h, err := i.mutex(name).TryLock(ctx); err == nil {
			_ = h.Unlock(context.WithoutCancel(ctx))
		}
		sleep(ctx, every)
	}
}

// stand campaigns until ctx ends, and leads until then.
func (i *instance) stand(ctx context.Context, id string) {
	_ = i.election("leader").Run(ctx, id, func(term context.Context, _ *etcdlock.Term) error {
		<-term.Done()
		return nil
	})
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// inBackground runs all until the test ends.
func inBackground(t *testing.T, all ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { f(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
