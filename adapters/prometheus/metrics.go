package promlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// other is the name of all locks that are not listed.
const other = "other"

var (
	waitBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
	renewalBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
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

// Metrics is a [prometheus.Collector]. It is safe for concurrent use.
type Metrics struct {
	names map[string]bool

	wait, hold             *prometheus.HistogramVec
	waiting, held, leading *prometheus.GaugeVec
	lost, changes          *prometheus.CounterVec
	renewal                prometheus.Histogram
	remaining              *prometheus.Desc

	mu      sync.Mutex
	series  map[labelPair]*series
	keepers []*session.Keeper
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns metrics without any series yet. Register them.
func New(opts ...Option) *Metrics {
	labels := []string{"lock_kind", "lock_name"}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		names:  map[string]bool{},
		series: map[labelPair]*series{},
		wait: prometheus.NewHistogramVec(histogram("etcdlock_wait_duration_seconds",
			"Time from the call of Lock to its return.", waitBuckets), append(labels, "error_type")),
		hold: prometheus.NewHistogramVec(histogram("etcdlock_hold_duration_seconds",
			"Time from Lock to Unlock or loss.", holdBuckets), labels),
		waiting: gauge("etcdlock_waiting", "Calls that wait in line for a lock."),
		held:    gauge("etcdlock_held", "Holds of locks."),
		leading: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcdlock_election_leading", Help: "Terms: 1 where this process leads.",
		}, labels[1:]),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcdlock_lost_total", Help: "Holds that ended otherwise than by Unlock.",
		}, labels),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcdlock_session_changes_total", Help: "Changes of sessions to a state.",
		}, []string{"state"}),
		renewal: prometheus.NewHistogram(histogram("etcdlock_session_renewal_duration_seconds",
			"Time to the answer of a renewal.", renewalBuckets)),
		remaining: prometheus.NewDesc("etcdlock_session_remaining_seconds",
			"How long the sessions may still be trusted without another answer, the least of them; 0 without a session.", nil, nil),
	}
	for _, o := range opts {
		o(m)
	}
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.wait, m.hold, m.waiting, m.held, m.leading, m.lost, m.changes, m.renewal}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
	descs <- m.remaining
}

// Collect implements [prometheus.Collector]. It makes no request.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}
	m.mu.Lock()
	keepers := m.keepers
	m.mu.Unlock()
	if len(keepers) == 0 {
		return
	}
	least := time.Duration(1<<63 - 1)
	for _, k := range keepers {
		left := time.Duration(0)
		if s, ok := k.Current(); ok {
			left = max(0, time.Until(s.Deadline()))
		}
		least = min(least, left)
	}
	metrics <- prometheus.MustNewConstMetric(m.remaining, prometheus.GaugeValue, least.Seconds())
}

// Watch exports how long the sessions of these Keepers may still be trusted.
func (m *Metrics) Watch(keepers ...*session.Keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepers = append(m.keepers[:len(m.keepers):len(m.keepers)], keepers...)
}

// SessionOptions are for session.New and session.Keep. They take the place of session.WithOnChange and
// session.WithOnRenewal.
func (m *Metrics) SessionOptions() []session.Option {
	return []session.Option{
		session.WithOnChange(func(c session.Change) { m.changes.WithLabelValues(c.State.String()).Inc() }),
		session.WithOnRenewal(func(r session.Renewal) {
			if r.Err == nil {
				m.renewal.Observe(r.Took.Seconds())
			}
		}),
	}
}

// series has the metrics of one kind and name, so that a hook looks them up once.
type series struct {
	waited, hold           prometheus.Observer
	waiting, held, leading prometheus.Gauge // leading is nil if this is no election
	lost                   prometheus.Counter
}

type labelPair struct{ kind, name string }

func (m *Metrics) label(name string) string {
	if m.names[name] {
		return name
	}
	return other
}

func (m *Metrics) of(e *etcdlock.Event) *series {
	name := m.label(e.Name)
	key := labelPair{e.Kind, name}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.series[key]; ok {
		return s
	}
	s := &series{
		waited:  m.wait.WithLabelValues(e.Kind, name, ""),
		hold:    m.hold.WithLabelValues(e.Kind, name),
		waiting: m.waiting.WithLabelValues(e.Kind, name),
		held:    m.held.WithLabelValues(e.Kind, name),
		lost:    m.lost.WithLabelValues(e.Kind, name),
	}
	if e.Kind == "election" {
		s.leading = m.leading.WithLabelValues(name)
	}
	m.series[key] = s
	return s
}

// Hooks are for [etcdlock.WithHooks]. One value serves all locks.
func (m *Metrics) Hooks() *etcdlock.Hooks {
	return &etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) { m.of(&w.Event).waiting.Inc() },
		Acquired: func(a etcdlock.Acquired) {
			s := m.of(&a.Event)
			s.waited.Observe(a.Waited.Seconds())
			if a.Queued {
				s.waiting.Dec()
			}
			s.begins()
		},
		Failed: func(f etcdlock.Failed) {
			s := m.of(&f.Event)
			if f.Queued {
				s.waiting.Dec()
			}
			m.wait.WithLabelValues(f.Kind, m.label(f.Name), errorType(f.Err)).Observe(f.Waited.Seconds())
		},
		Released: func(r etcdlock.Released) {
			if r.AfterLost {
				return
			}
			s := m.of(&r.Event)
			s.ends(r.Held)
			if errors.Is(r.Err, etcdlock.ErrLost) {
				s.lost.Inc()
			}
		},
		Lost: func(l etcdlock.Lost) {
			s := m.of(&l.Event)
			s.ends(l.Held)
			s.lost.Inc()
		},
	}
}

func (s *series) begins() {
	s.held.Inc()
	if s.leading != nil {
		s.leading.Inc()
	}
}

func (s *series) ends(held time.Duration) {
	s.held.Dec()
	s.hold.Observe(held.Seconds())
	if s.leading != nil {
		s.leading.Dec()
	}
}

// errorType sorts errors into a few kinds. The order is that of the table "Errors" in the documentation of etcdlock.
func errorType(err error) string {
	switch {
	case errors.Is(err, etcdlock.ErrBusy):
		return "busy"
	case errors.Is(err, etcdlock.ErrClosed):
		return "closed"
	case errors.Is(err, etcdlock.ErrLost):
		return "lost"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return "refused"
	}
	return "other"
}
