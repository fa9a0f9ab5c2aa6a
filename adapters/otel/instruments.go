package otellock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	scope = "github.com/etcdlock/locks/adapters/otel"

	// other is the name of all locks that are not listed.
	other = "other"
)

// The SDK's own buckets are for milliseconds.
var (
	waitBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
	renewalBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

type options struct {
	names  map[string]bool
	meters metric.MeterProvider
	tracer trace.TracerProvider
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

// Instruments make metrics and spans of what their hooks are told. They are safe for concurrent use.
type Instruments struct {
	names  map[string]bool
	tracer trace.Tracer

	wait, hold, renewal    metric.Float64Histogram
	waiting, held, leading metric.Int64UpDownCounter
	lost, changes          metric.Int64Counter

	mu      sync.Mutex
	sets    map[attributes]*set
	keepers []*session.Keeper
}

// New makes the instruments. Errors are those of the meter.
func New(opts ...Option) (*Instruments, error) {
	o := options{names: map[string]bool{}, meters: otel.GetMeterProvider(), tracer: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	i := &Instruments{names: o.names, tracer: o.tracer.Tracer(scope), sets: map[attributes]*set{}}
	meter := o.meters.Meter(scope)
	var failed [9]error
	histogram := func(name, text string, buckets []float64, err *error) (h metric.Float64Histogram) {
		h, *err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
		return h
	}
	upDown := func(name, unit, text string, err *error) (c metric.Int64UpDownCounter) {
		c, *err = meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		return c
	}
	counter := func(name, unit, text string, err *error) (c metric.Int64Counter) {
		c, *err = meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		return c
	}
	i.wait = histogram("etcdlock.wait.duration", "Time from the call of Lock to its return.", waitBuckets, &failed[0])
	i.hold = histogram("etcdlock.hold.duration", "Time from Lock to Unlock or loss.", holdBuckets, &failed[1])
	i.renewal = histogram("etcdlock.session.renewal.duration", "Time to the answer of a renewal.", renewalBuckets, &failed[2])
	i.waiting = upDown("etcdlock.waiting", "{call}", "Calls that wait in line for a lock.", &failed[3])
	i.held = upDown("etcdlock.held", "{hold}", "Holds of locks.", &failed[4])
	i.leading = upDown("etcdlock.election.leading", "{term}", "Terms: 1 where this process leads.", &failed[5])
	i.lost = counter("etcdlock.lost", "{hold}", "Holds that ended otherwise than by Unlock.", &failed[6])
	i.changes = counter("etcdlock.session.changes", "{change}", "Changes of sessions to a state.", &failed[7])
	_, failed[8] = meter.Float64ObservableGauge("etcdlock.session.remaining", metric.WithUnit("s"),
		metric.WithDescription("How long the sessions may still be trusted without another answer, the least of them; 0 without a session."),
		metric.WithFloat64Callback(i.observeRemaining))
	return i, errors.Join(failed[:]...)
}

func (i *Instruments) observeRemaining(_ context.Context, o metric.Float64Observer) error {
	i.mu.Lock()
	keepers := i.keepers
	i.mu.Unlock()
	if len(keepers) == 0 {
		return nil
	}
	least := time.Duration(1<<63 - 1)
	for _, k := range keepers {
		left := time.Duration(0)
		if s, ok := k.Current(); ok {
			left = max(0, time.Until(s.Deadline()))
		}
		least = min(least, left)
	}
	o.Observe(least.Seconds())
	return nil
}

// Watch reports how long the sessions of these Keepers may still be trusted.
func (i *Instruments) Watch(keepers ...*session.Keeper) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keepers = append(i.keepers[:len(i.keepers):len(i.keepers)], keepers...)
}

// SessionOptions are for session.New and session.Keep. They take the place of session.WithOnChange and
// session.WithOnRenewal.
func (i *Instruments) SessionOptions() []session.Option {
	return []session.Option{
		session.WithOnChange(func(c session.Change) {
			i.changes.Add(context.Background(), 1, metric.WithAttributes(attribute.String("state", c.State.String())))
		}),
		session.WithOnRenewal(func(r session.Renewal) {
			if r.Err == nil {
				i.renewal.Record(context.Background(), r.Took.Seconds())
			}
		}),
	}
}

// attributes are those of a set. Without an error failed is empty.
type attributes struct{ kind, name, failed string }

// set has the attributes in the form in which instruments want them, so that a hook makes none.
type set struct {
	record []metric.RecordOption
	add    []metric.AddOption
	named  []metric.AddOption // with the name alone, for elections
}

func (i *Instruments) of(e *etcdlock.Event, failed string) *set {
	name := other
	if i.names[e.Name] {
		name = e.Name
	}
	key := attributes{e.Kind, name, failed}
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.sets[key]; ok {
		return s
	}
	all := []attribute.KeyValue{attribute.String("lock.kind", e.Kind), attribute.String("lock.name", name)}
	if failed != "" {
		all = append(all, attribute.String("error.type", failed))
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	alone := metric.WithAttributeSet(attribute.NewSet(attribute.String("lock.name", name)))
	s := &set{record: []metric.RecordOption{option}, add: []metric.AddOption{option}, named: []metric.AddOption{alone}}
	i.sets[key] = s
	return s
}

// Hooks are for [etcdlock.WithHooks]. One value serves all locks.
func (i *Instruments) Hooks() *etcdlock.Hooks {
	return &etcdlock.Hooks{
		Waiting: func(w etcdlock.Waiting) { i.waiting.Add(w.Context, 1, i.of(&w.Event, "").add...) },
		Acquired: func(a etcdlock.Acquired) {
			s := i.of(&a.Event, "")
			i.wait.Record(a.Context, a.Waited.Seconds(), s.record...)
			if a.Queued {
				i.waiting.Add(a.Context, -1, s.add...)
				i.span(&a.Event, a.Waited, nil)
			}
			i.held.Add(a.Context, 1, s.add...)
			if a.Kind == "election" {
				i.leading.Add(a.Context, 1, s.named...)
			}
		},
		Failed: func(f etcdlock.Failed) {
			if f.Queued {
				i.waiting.Add(f.Context, -1, i.of(&f.Event, "").add...)
				i.span(&f.Event, f.Waited, f.Err)
			}
			i.wait.Record(f.Context, f.Waited.Seconds(), i.of(&f.Event, errorType(f.Err)).record...)
		},
		Released: func(r etcdlock.Released) {
			if !r.AfterLost {
				i.over(&r.Event, r.Held, errors.Is(r.Err, etcdlock.ErrLost))
			}
		},
		Lost: func(l etcdlock.Lost) { i.over(&l.Event, l.Held, true) },
	}
}

// over counts the end of a hold.
func (i *Instruments) over(e *etcdlock.Event, held time.Duration, lost bool) {
	s := i.of(e, "")
	i.held.Add(e.Context, -1, s.add...)
	i.hold.Record(e.Context, held.Seconds(), s.record...)
	if e.Kind == "election" {
		i.leading.Add(e.Context, -1, s.named...)
	}
	if lost {
		i.lost.Add(e.Context, 1, s.add...)
	}
}

// span makes the span of a wait that is over.
func (i *Instruments) span(e *etcdlock.Event, waited time.Duration, err error) {
	now := time.Now()
	_, span := i.tracer.Start(e.Context, "etcdlock wait", trace.WithTimestamp(now.Add(-waited)), trace.WithAttributes(
		attribute.String("lock.kind", e.Kind), attribute.String("lock.name", e.Name), attribute.Int64("lock.token", int64(e.Token))))
	if !span.IsRecording() {
		return
	}
	if err != nil {
		span.SetAttributes(attribute.String("error.type", errorType(err)))
		span.SetStatus(codes.Error, err.Error()) // names the holder
	}
	span.End(trace.WithTimestamp(now))
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
