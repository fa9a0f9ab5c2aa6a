package session

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

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

// reportRenewal calls the function of WithOnRenewal.
func (s *Session) reportRenewal(r Renewal) {
	if s.renewal != nil {
		apart(func() { s.renewal(r) })
	}
}

// outcome is that of an attempt that was sent at the given time.
func (s *Session) outcome(sent time.Duration, err error) Renewal {
	return Renewal{Lease: s.lease, Took: s.now() - sent, Left: s.remaining(), Err: err}
}

// settle takes in what an attempt has come to.
func (s *Session) settle(sent time.Duration, header *etcdserverpb.ResponseHeader, ttl int64, err error) Renewal {
	r := s.outcome(sent, err)
	switch {
	case err == nil && ttl <= 0, request.IsAnswer(err, rpctypes.ErrLeaseNotFound): // the server says both
		s.lose(rpctypes.ErrLeaseNotFound)
		r.Err = s.Err()
	case err == nil:
		s.link.ObserveRenewal(header)
		s.extend(sent, time.Duration(ttl)*time.Second)
		r.Err = s.Err()
	}
	return r
}
