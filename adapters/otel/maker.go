package otellock

import "go.opentelemetry.io/otel/metric"

// maker makes instruments and gathers the errors.
type maker struct {
	meter  metric.Meter
	failed []error
}

func (m *maker) note(err error) {
	if err != nil {
		m.failed = append(m.failed, err)
	}
}

// histogram is given buckets, since those of the SDK are for milliseconds.
func (m *maker) histogram(name, text string, buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
	m.note(err)
	return h
}

func (m *maker) upDown(name, unit, text string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.note(err)
	return c
}

func (m *maker) counter(name, unit, text string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.note(err)
	return c
}

func (m *maker) gauge(name, text string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(text))
	m.note(err)
	return g
}

// observe has f report the values of instruments whenever they are collected.
func (m *maker) observe(f metric.Callback, instruments ...metric.Observable) {
	if len(m.failed) > 0 {
		return
	}
	_, err := m.meter.RegisterCallback(f, instruments...)
	m.note(err)
}
