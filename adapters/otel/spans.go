package otellock

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	shared "github.com/etcdlock/locks/adapters/internal/metric"
	"github.com/etcdlock/locks/etcdlock"
)

// spans makes spans of what is over.
type spans struct {
	tracer trace.Tracer
	holds  time.Duration // the longest hold that is a span
}

func (s *spans) waited(e *etcdlock.Event, d time.Duration, err error) {
	s.span("etcdlock wait", e, d, err)
}

func (s *spans) held(e *etcdlock.Event, d time.Duration, err error) {
	if d <= s.holds {
		s.span("etcdlock hold", e, d, err)
	}
}

// span makes no span in a context without a sampled one: nobody would see it in its trace, and making it costs.
func (s *spans) span(name string, e *etcdlock.Event, d time.Duration, err error) {
	if !trace.SpanContextFromContext(e.Context).IsSampled() {
		return
	}
	now := time.Now()
	_, span := s.tracer.Start(e.Context, name, trace.WithTimestamp(now.Add(-d)), trace.WithAttributes(
		attribute.String("lock.kind", e.Kind), attribute.String("lock.name", e.Name), attribute.Int64("lock.token", int64(e.Token))))
	if err != nil {
		span.SetAttributes(attribute.String("error.type", shared.ErrorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	var blocked *etcdlock.BlockedError
	if errors.As(err, &blocked) {
		span.SetAttributes(attribute.String("lock.holder", holder(blocked)),
			attribute.Int64("lock.holder.token", int64(blocked.Token)), attribute.Int("lock.ahead", blocked.Ahead))
	}
	span.End(trace.WithTimestamp(now))
}

// holder names the owner of the lock.
func holder(b *etcdlock.BlockedError) string {
	switch o := b.Owner; {
	case o.Host == "":
		return b.Value // a candidate, or another program's key
	case o.Label != "":
		return fmt.Sprintf("%s:%d %s", o.Host, o.PID, o.Label)
	default:
		return fmt.Sprintf("%s:%d %s", o.Host, o.PID, o.Program)
	}
}
