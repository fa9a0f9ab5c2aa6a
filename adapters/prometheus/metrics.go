package promlock

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcdlock/locks/adapters/internal/metric"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Option changes a default of [New].
type Option func(*Metrics)

// WithNames makes the names of these locks labels. All others share the name "other".
func WithNames(names ...string) Option {
	return func(m *Metrics) {
		for _, name := range names {
			m.names[name] = true
		}
	}
}

// WithLeaderElectionStatus adds leader_election_master_status, for dashboards and alerts that are made for client-go's
// leader election: 1 where this process leads the election of that name, 0 where it stands by. The default is not to
// export it. Do not use it in a process that has client-go's metric of that name in the same registry.
func WithLeaderElectionStatus() Option {
	return func(m *Metrics) {
		m.status = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 where this process leads, 0 where it stands by.",
		}, []string{"name"})
	}
}

// Metrics is a [prometheus.Collector]. It is safe for concurrent use.
type Metrics struct {
	names metric.Names
	trust metric.Trust

	wait, hold                     *prometheus.HistogramVec
	waiting, held, leading, status *prometheus.GaugeVec // status is nil without its option
	lost, changes                  *prometheus.CounterVec
	renewal                        prometheus.Histogram
	remaining, lowest, ttl         *prometheus.Desc

	series metric.Table[*series]
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns metrics. Those of locks have no series before their first use. Register them.
func New(opts ...Option) *Metrics {
	labels := []string{"lock_kind", "lock_name"}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		names: metric.Names{},
		wait: prometheus.NewHistogramVec(histogram("etcdlock_wait_duration_seconds",
			"Time from the call of Lock to its return.", metric.WaitBuckets), append(labels, "error_type")),
		hold: prometheus.NewHistogramVec(histogram("etcdlock_hold_duration_seconds",
			"Time from Lock to Unlock or loss.", metric.HoldBuckets), labels),
		waiting: gauge("etcdlock_waiting", "Calls that wait in line for a lock.", labels...),
		held:    gauge("etcdlock_held", "Holds of locks.", labels...),
		leading: gauge("etcdlock_election_leading", "Terms: 1 where this process leads, 0 where it stands by.", "lock_name"),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcdlock_lost_total", Help: "Holds that ended otherwise than by Unlock.",
		}, labels),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcdlock_session_changes_total", Help: "Changes of sessions to a state.",
		}, []string{"state"}),
		renewal: prometheus.NewHistogram(histogram("etcdlock_session_renewal_duration_seconds",
			"Time to the answer of a renewal.", metric.RenewalBuckets)),
		remaining: prometheus.NewDesc("etcdlock_session_remaining_seconds",
			"How long the sessions may still be trusted without another answer, the least of them; 0 without a session.", nil, nil),
		lowest: prometheus.NewDesc("etcdlock_session_remaining_lowest_seconds",
			"How long the sessions could be trusted, the least of the last minute.", nil, nil),
		ttl: prometheus.NewDesc("etcdlock_session_ttl_seconds", "TTL of the sessions, the longest of them.", nil, nil),
	}
	// A counter that begins with 1 has no increase in Prometheus.
	for _, state := range []session.State{session.Live, session.AtRisk, session.Lost, session.Closed} {
		m.changes.WithLabelValues(state.String())
	}
	for _, o := range opts {
		o(m)
	}
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	all := []prometheus.Collector{m.wait, m.hold, m.waiting, m.held, m.leading, m.lost, m.changes, m.renewal}
	if m.status != nil {
		all = append(all, m.status)
	}
	return all
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
	for _, d := range []*prometheus.Desc{m.remaining, m.lowest, m.ttl} {
		descs <- d
	}
}

// Collect implements [prometheus.Collector]. It makes no request.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}
	gauge := func(desc *prometheus.Desc, d time.Duration) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, d.Seconds())
	}
	r := m.trust.Read()
	if r.Watched {
		gauge(m.remaining, r.Remaining)
	}
	if r.Known {
		gauge(m.lowest, r.Lowest)
	}
	if r.TTL > 0 {
		gauge(m.ttl, r.TTL)
	}
}

// Watch exports how long the sessions of these Keepers may still be trusted, and their TTL.
func (m *Metrics) Watch(keepers ...*session.Keeper) { m.trust.Watch(keepers...) }

// SessionOptions are for session.New and session.Keep. They take the place of session.WithOnChange and
// session.WithOnRenewal.
func (m *Metrics) SessionOptions() []session.Option {
	return []session.Option{
		session.WithOnChange(func(c session.Change) { m.changes.WithLabelValues(c.State.String()).Inc() }),
		session.WithOnRenewal(func(r session.Renewal) {
			m.trust.Renewed(r)
			if r.Err == nil {
				m.renewal.Observe(r.Took.Seconds())
			}
		}),
	}
}

// series has the metrics of a key, so that a hook looks them up once.
type series struct {
	waited        prometheus.Observer
	hold          prometheus.Observer // this and all that follows is nil for calls that fail
	waiting, held prometheus.Gauge
	leading       []prometheus.Gauge // of an election
	lost          prometheus.Counter
}

func (m *Metrics) of(e *etcdlock.Event, failed string) *series {
	return m.series.Of(metric.Key{Kind: e.Kind, Label: m.names.Label(e.Name), Failed: failed}, m.create)
}

func (m *Metrics) create(k metric.Key) *series {
	s := &series{waited: m.wait.WithLabelValues(k.Kind, k.Label, k.Failed)}
	if k.Failed != "" {
		return s
	}
	s.hold = m.hold.WithLabelValues(k.Kind, k.Label)
	s.waiting = m.waiting.WithLabelValues(k.Kind, k.Label)
	s.held = m.held.WithLabelValues(k.Kind, k.Label)
	s.lost = m.lost.WithLabelValues(k.Kind, k.Label)
	if k.Kind == "election" {
		s.leading = append(s.leading, m.leading.WithLabelValues(k.Label))
		if m.status != nil {
			s.leading = append(s.leading, m.status.WithLabelValues(k.Label))
		}
	}
	return s
}

// Hooks are for [etcdlock.WithHooks]. One value serves all locks.
func (m *Metrics) Hooks() *etcdlock.Hooks {
	return &etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) { m.of(&w.Event, "").waiting.Inc() },
		Acquired: func(a etcdlock.Acquired) {
			s := m.of(&a.Event, "")
			s.waited.Observe(a.Waited.Seconds())
			if a.Queued {
				s.waiting.Dec()
			}
			s.begins()
		},
		Failed: func(f etcdlock.Failed) {
			if f.Queued {
				m.of(&f.Event, "").waiting.Dec()
			}
			m.of(&f.Event, metric.ErrorType(f.Err)).waited.Observe(f.Waited.Seconds())
		},
		Released: func(r etcdlock.Released) {
			if r.AfterLost {
				return
			}
			s := m.of(&r.Event, "")
			s.ends(r.Held)
			if errors.Is(r.Err, etcdlock.ErrLost) {
				s.lost.Inc()
			}
		},
		Lost: func(l etcdlock.Lost) {
			s := m.of(&l.Event, "")
			s.ends(l.Held)
			s.lost.Inc()
		},
	}
}

func (s *series) begins() {
	s.held.Inc()
	for _, g := range s.leading {
		g.Inc()
	}
}

func (s *series) ends(held time.Duration) {
	s.held.Dec()
	s.hold.Observe(held.Seconds())
	for _, g := range s.leading {
		g.Dec()
	}
}
