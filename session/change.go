package session

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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

// report reports a change between Live and AtRisk, from the goroutine that renews.
func (s *Session) report(last *State, now State, why error) {
	if s.change == nil || now == *last || (now != Live && now != AtRisk) {
		return
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	if s.ctx.Err() != nil {
		return // the end is the last change
	}
	if now == Live {
		why = nil // another attempt has been answered since
	}
	*last = now
	apart(func() { s.change(Change{Lease: s.lease, State: now, Err: why}) })
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

// reportEnd arranges for the end to be reported.
func (s *Session) reportEnd() {
	if s.change == nil {
		return
	}
	context.AfterFunc(s.ctx, func() {
		s.reporting.Lock()
		defer s.reporting.Unlock()
		err := context.Cause(s.ctx)
		s.change(Change{Lease: s.lease, State: stateOf(err, 0, s.ttl), Err: err})
	})
}
