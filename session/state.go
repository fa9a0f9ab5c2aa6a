package session

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// State is what a session knows of its lease.
type State int

const (
	// Live means that renewals are answered in time.
	Live State = iota + 1
	// AtRisk means that a renewal is overdue. The session is still trusted, and is lost at
	// the deadline if no answer comes. Begin no new work under its locks.
	AtRisk
	// Lost means that the deadline has passed or the lease is gone. Final.
	Lost
	// Closed means that Close was called before a loss. Final.
	Closed
)

func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case AtRisk:
		return "at risk"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	}
	return "unknown"
}

// stateOf decides from how a session ended, if it did, and how long ago the
// last answered renewal was sent. Renewals leave at ttl/3, and the first attempt
// has timed out by ttl/2.
func stateOf(ended error, age, ttl time.Duration) State {
	switch {
	case errors.Is(ended, ErrLost):
		return Lost
	case ended != nil:
		return Closed
	case age > ttl/2:
		return AtRisk
	}
	return Live
}

// Change is what happened to a session, for [WithOnChange].
type Change struct {
	Lease clientv3.LeaseID
	State State // the new one
	Err   error // why; nil if the session is live again
}

// WithOnChange makes the session call f when its state changes: to AtRisk when a renewal
// is overdue, back to Live when one is answered, and in the end, once, to Lost or Closed.
// f is called from goroutines of the session, so it must not block; the last call may
// come while Close is returning. It is for logs and displays: what must stop with the
// session derives from its Context. The default is none.
func WithOnChange(f func(Change)) Option {
	return optionFunc(func(o *options) { o.change = f })
}

// Renewal is what has become of an attempt to renew a lease, for [WithOnRenewal].
type Renewal struct {
	Lease clientv3.LeaseID
	Took  time.Duration // from before it was sent
	Left  time.Duration // to the deadline, before the answer counted
	Err   error         // nil if it was answered; a later attempt follows unless the session has ended
}

// WithOnRenewal makes the session call f when an attempt to renew its lease is answered, fails, or is not answered
// before the next attempt starts; then its answer may still follow. The smallest Left is the early warning: at 0 the
// session is lost. Calls of [Session.Renew] are not reported. f is called from a goroutine of the session, one call at
// a time, so it must not block: the next renewal waits for it. The default is none.
func WithOnRenewal(f func(Renewal)) Option {
	return optionFunc(func(o *options) { o.renewal = f })
}

// report reports a change between Live and AtRisk. As all reports it comes from the goroutine that renews, so they
// are in order.
func (s *Session) report(last *State, now State, why error) {
	if s.change == nil || now == *last || s.ctx.Err() != nil {
		return // the end is the last change
	}
	if now == Live {
		why = nil // another attempt has been answered since
	}
	*last = now
	apart(func() { s.change(Change{Lease: s.lease, State: now, Err: why}) })
}

// reportEnd does not wait for the callback, which may call Close.
func (s *Session) reportEnd() {
	if s.change != nil {
		err := context.Cause(s.ctx)
		go s.change(Change{Lease: s.lease, State: stateOf(err, 0, s.ttl), Err: err})
	}
}

// reportRenewal calls the function of WithOnRenewal.
func (s *Session) reportRenewal(r Renewal) {
	if s.renewal != nil {
		apart(func() { s.renewal(r) })
	}
}

// apart calls f in a goroutine of its own, so that a callback that ends its goroutine does not end the renewals.
func apart(f func()) {
	called := make(chan struct{})
	go func() {
		defer close(called)
		f()
	}()
	<-called
}
