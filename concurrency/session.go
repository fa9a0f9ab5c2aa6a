package concurrency

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

const defaultTTL = 60 // seconds, as etcd's package has it

// Session is a lease that is renewed until the session ends. It is safe for concurrent use.
type Session struct {
	session *session.Session
	ctx     context.Context
	cancel  context.CancelFunc
	parent  context.Context // of WithContext
	ttl     time.Duration
	release func() bool // the parent's end has no effect any more
}

type options struct {
	ttl int
	ctx context.Context
}

// SessionOption changes a default of [NewSession].
type SessionOption func(*options)

// WithTTL sets the TTL in seconds. The default is 60; what is not positive is ignored. A crashed process keeps its locks
// for that long.
func WithTTL(ttl int) SessionOption {
	return func(o *options) {
		if ttl > 0 {
			o.ttl = ttl
		}
	}
}

// WithContext makes the session end with ctx instead of with the client. Its lease is left to expire then. ctx
// also bounds NewSession and Close.
func WithContext(ctx context.Context) SessionOption {
	return func(o *options) { o.ctx = ctx }
}

// NewSession grants a lease, and renews it until the session ends: one round trip. Without a deadline it gives up
// after 10 s. Close the session when it is not needed any more.
func NewSession(client *clientv3.Client, opts ...SessionOption) (*Session, error) {
	o := options{ttl: defaultTTL, ctx: client.Ctx()}
	for _, opt := range opts {
		opt(&o)
	}
	ttl := time.Duration(o.ttl) * time.Second
	live, err := session.New(o.ctx, client, session.WithTTL(ttl))
	if err != nil {
		return nil, translate(o.ctx, err)
	}
	s := &Session{session: live, parent: o.ctx, ttl: ttl}
	s.ctx, s.cancel = context.WithCancel(o.ctx)
	context.AfterFunc(live.Context(), s.cancel)
	s.release = context.AfterFunc(o.ctx, live.Abandon)
	return s, nil
}

// Client returns the client that the session was created with.
func (s *Session) Client() *clientv3.Client { return s.session.Client() }

// Lease returns the lease to bind keys to.
func (s *Session) Lease() clientv3.LeaseID { return s.session.Lease() }

// Ctx returns a context that ends with the session. It has the values of the context of [WithContext].
func (s *Session) Ctx() context.Context { return s.ctx }

// Done returns a channel that is closed when the session ends: when it is lost, before the server can expire the
// lease, or by Close, Orphan or the end of the context.
func (s *Session) Done() <-chan struct{} { return s.session.Done() }

// Orphan ends the session without revoking the lease: the server drops it, with its keys, after its TTL.
func (s *Session) Orphan() {
	s.release()
	s.session.Abandon()
	s.cancel()
}

// Close ends the session and revokes its lease, which deletes the keys bound to it: one round trip. It gives up after
// the TTL.
func (s *Session) Close() error {
	s.release()
	defer s.cancel()
	ctx, cancel := context.WithTimeout(s.parent, s.ttl)
	defer cancel()
	return translate(ctx, s.session.Close(ctx))
}
