package session

import (
	"fmt"
	"log/slog"
	"time"
)

const (
	defaultTTL    = 15 * time.Second
	minimumMargin = 200 * time.Millisecond
)

// Option changes a default of [New] or [Keep].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	ttl    time.Duration
	margin time.Duration // 0: the default for the TTL that the server grants
	logger *slog.Logger
	now    clock

	change  func(Change)
	renewal func(Renewal)
}

// WithTTL sets how long after the last renewal the lease lives, and so how long
// a crashed process keeps its locks. The default is 15 s. It is rounded up to
// whole seconds; the server raises what is below its minimum (2 s with etcd's
// default election time-out), and [Session.TTL] says what was granted. A TTL
// that is not positive makes [New] fail.
func WithTTL(d time.Duration) Option {
	return optionFunc(func(o *options) { o.ttl = d })
}

// WithMargin sets how long before the lease can expire the session counts as
// lost. It covers the difference in rate between two machines' clocks and
// the time a holder needs to stop. The default is a tenth of the TTL, at least
// 200 ms. It must be positive and less than half of the TTL, or [New] fails.
func WithMargin(d time.Duration) Option {
	return optionFunc(func(o *options) {
		o.margin = d
		if d == 0 {
			o.margin = -1 // an explicit zero is a mistake, not the default
		}
	})
}

// WithLogger makes the session log failed renewals, its loss and keys that it
// had to remove in the background. By default it logs nothing, as with nil.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(o *options) {
		if l != nil {
			o.logger = l
		}
	})
}

// WithClock replaces the clock that decides how long the session may still trust its
// lease. It is for tests in virtual time: inside a testing/synctest bubble only Go's own
// clock moves as the test wants,
//
//	start := time.Now() // inside the bubble
//	session.WithClock(func() time.Duration { return time.Since(start) })
//
// now returns the time that has passed since a fixed but arbitrary instant. It must never
// go back, must run as fast as the server's clock does, and may be called by many
// goroutines at a time. In production it must also count the time during which the machine
// is suspended, which the default does on Linux (see Clock in the package documentation) and
// time.Since does not: with a clock that stands still meanwhile, a holder continues to trust
// a lock that has another owner. Timers follow Go's clock in any case. A nil now is the
// default.
func WithClock(now func() time.Duration) Option {
	return optionFunc(func(o *options) {
		if now != nil {
			o.now = now
		}
	})
}

func collect(opts []Option) options {
	o := options{ttl: defaultTTL, logger: slog.New(slog.DiscardHandler), now: systemClock()}
	for _, opt := range opts {
		if opt == nil {
			panic("session: nil option")
		}
		opt.apply(&o)
	}
	return o
}

// seconds is the TTL to ask the server for.
func (o *options) seconds() (int64, error) {
	if o.ttl <= 0 {
		return 0, fmt.Errorf("session: the TTL must be positive, not %v", o.ttl)
	}
	seconds := int64(o.ttl / time.Second)
	if o.ttl%time.Second > 0 {
		seconds++
	}
	return seconds, nil
}

// marginFor is the margin to keep from a lease of the granted TTL.
func (o *options) marginFor(granted time.Duration) (time.Duration, error) {
	if o.margin == 0 {
		return max(granted/10, minimumMargin), nil
	}
	if o.margin < 0 || o.margin >= granted/2 {
		return 0, fmt.Errorf("session: the margin must be positive and less than half of the TTL of %v", granted)
	}
	return o.margin, nil
}
