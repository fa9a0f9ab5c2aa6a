package otellock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	shared "github.com/etcdlock/locks/adapters/internal/metric"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const scope = "github.com/etcdlock/locks/adapters/otel"

type options struct {
	names  shared.Names
	meters metric.MeterProvider
	tracer trace.TracerProvider
	holds  time.Duration
}

// Option changes a default of [New].
type Option func(*options)

// WithNames makes the names of these locks attributes. All others share the name "other".
func WithNames(names ...string) Option {
	return func(o *options) {
		for _, name := range names {
			o.names[name] = true
		}
	}
}

// WithMeterProvider sets the provider of the instruments. The default is the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider sets the provider of the spans. The default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracer = p } }

// WithHoldSpans makes spans of holds that last no longer than longest. The default is none: a term may last days.
func WithHoldSpans(longest time.Duration) Option { return func(o *options) { o.holds = longest } }

// Instruments make metrics and spans of the calls of their hooks. They are safe for concurrent use.
type Instruments struct {
	names shared.Names
	spans spans
	trust shared.Trust

	wait, hold, renewal    metric.Float64Histogram
	waiting, held, leading metric.Int64ObservableUpDownCounter
	lost, changes          metric.Int64ObservableCounter

	sets   shared.Table[*set]
	states map[session.State]*state
}

// New makes the instruments. Errors are those of the meter.
func New(opts ...Option) (*Instruments, error) {
	o := options{names: shared.Names{}, meters: otel.GetMeterProvider(), tracer: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	i := &Instruments{names: o.names, spans: spans{o.tracer.Tracer(scope), o.holds}, states: map[session.State]*state{}}
	for _, s := range []session.State{session.Live, session.AtRisk, session.Lost, session.Closed} {
		i.states[s] = &state{option: metric.WithAttributeSet(attribute.NewSet(attribute.String("state", s.String())))}
	}
	m := maker{meter: o.meters.Meter(scope)}
	i.wait = m.histogram("etcdlock.wait.duration", "Time from the call of Lock to its return.", shared.WaitBuckets)
	i.hold = m.histogram("etcdlock.hold.duration", "Time from Lock to Unlock or loss.", shared.HoldBuckets)
	i.renewal = m.histogram("etcdlock.session.renewal.duration", "Time to the answer of a renewal.", shared.RenewalBuckets)
	i.waiting = m.upDown("etcdlock.waiting", "{call}", "Calls that wait in line for a lock.")
	i.held = m.upDown("etcdlock.held", "{hold}", "Holds of locks.")
	i.leading = m.upDown("etcdlock.election.leading", "{term}", "Terms: 1 where this process leads, 0 where it stands by.")
	i.lost = m.counter("etcdlock.lost", "{hold}", "Holds that ended otherwise than by Unlock.")
	i.changes = m.counter("etcdlock.session.changes", "{change}", "Changes of sessions to a state.")
	m.observe(i.observeCounts, i.waiting, i.held, i.leading, i.lost, i.changes)
	remaining := m.gauge("etcdlock.session.remaining",
		"How long the sessions may still be trusted without another answer, the least of them; 0 without a session.")
	lowest := m.gauge("etcdlock.session.remaining.lowest", "How long the sessions could be trusted, the least of the last minute.")
	ttl := m.gauge("etcdlock.session.ttl", "TTL of the sessions, the longest of them.")
	m.observe(func(_ context.Context, o metric.Observer) error {
		r := i.trust.Read()
		if r.Watched {
			o.ObserveFloat64(remaining, r.Remaining.Seconds())
		}
		if r.Known {
			o.ObserveFloat64(lowest, r.Lowest.Seconds())
		}
		if r.TTL > 0 {
			o.ObserveFloat64(ttl, r.TTL.Seconds())
		}
		return nil
	}, remaining, lowest, ttl)
	return i, errors.Join(m.failed...)
}

// observeCounts reports what hooks have counted: to add to an instrument in each hook would cost more.
func (i *Instruments) observeCounts(_ context.Context, o metric.Observer) error {
	for k, s := range i.sets.All() {
		if k.Failed != "" {
			continue
		}
		o.ObserveInt64(i.waiting, s.waiting.Load(), s.option)
		o.ObserveInt64(i.held, s.held.Load(), s.option)
		o.ObserveInt64(i.lost, s.lost.Load(), s.option)
		if k.Kind == "election" {
			o.ObserveInt64(i.leading, s.held.Load(), s.named)
		}
	}
	for _, s := range i.states {
		o.ObserveInt64(i.changes, s.changes.Load(), s.option)
	}
	return nil
}

// Watch reports how long the sessions of these Keepers may still be trusted, and their TTL.
func (i *Instruments) Watch(keepers ...*session.Keeper) { i.trust.Watch(keepers...) }

// SessionOptions are for session.New and session.Keep. They take the place of session.WithOnChange and
// session.WithOnRenewal.
func (i *Instruments) SessionOptions() []session.Option {
	return []session.Option{
		session.WithOnChange(func(c session.Change) {
			if s := i.states[c.State]; s != nil {
				s.changes.Add(1)
			}
		}),
		session.WithOnRenewal(func(r session.Renewal) {
			i.trust.Renewed(r)
			if r.Err == nil {
				i.renewal.Record(context.Background(), r.Took.Seconds())
			}
		}),
	}
}

// set is about one kind of lock and name. It has the attributes in the form in which instruments want them, so that a
// hook makes none.
type set struct {
	option metric.MeasurementOption
	record []metric.RecordOption
	named  metric.MeasurementOption // with the name alone, for elections

	waiting, held, lost atomic.Int64
}

// state counts changes to it.
type state struct {
	option  metric.MeasurementOption
	changes atomic.Int64
}

func (i *Instruments) of(e *etcdlock.Event, failed string) *set {
	return i.sets.Of(shared.Key{Kind: e.Kind, Label: i.names.Label(e.Name), Failed: failed}, newSet)
}

func newSet(k shared.Key) *set {
	name := attribute.String("lock.name", k.Label)
	all := []attribute.KeyValue{attribute.String("lock.kind", k.Kind), name}
	if k.Failed != "" {
		all = append(all, attribute.String("error.type", k.Failed))
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	return &set{option: option, record: []metric.RecordOption{option}, named: metric.WithAttributeSet(attribute.NewSet(name))}
}

// Hooks are for [etcdlock.WithHooks]. One value serves all locks.
func (i *Instruments) Hooks() *etcdlock.Hooks {
	return &etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) { i.of(&w.Event, "").waiting.Add(1) },
		Acquired: func(a etcdlock.Acquired) {
			s := i.of(&a.Event, "")
			if a.Queued {
				s.waiting.Add(-1)
				i.spans.waited(&a.Event, a.Waited, nil)
			}
			s.held.Add(1)
			i.wait.Record(a.Context, a.Waited.Seconds(), s.record...)
		},
		Failed: func(f etcdlock.Failed) {
			if f.Queued {
				i.of(&f.Event, "").waiting.Add(-1)
				i.spans.waited(&f.Event, f.Waited, f.Err)
			}
			i.wait.Record(f.Context, f.Waited.Seconds(), i.of(&f.Event, shared.ErrorType(f.Err)).record...)
		},
		Released: func(r etcdlock.Released) {
			if !r.AfterLost {
				i.over(&r.Event, r.Held, r.Err, errors.Is(r.Err, etcdlock.ErrLost))
			}
		},
		Lost: func(l etcdlock.Lost) { i.over(&l.Event, l.Held, l.Err, true) },
	}
}

// over counts the end of a hold.
func (i *Instruments) over(e *etcdlock.Event, held time.Duration, err error, lost bool) {
	s := i.of(e, "")
	s.held.Add(-1)
	if lost {
		s.lost.Add(1)
	}
	i.hold.Record(e.Context, held.Seconds(), s.record...)
	i.spans.held(e, held, err)
}
