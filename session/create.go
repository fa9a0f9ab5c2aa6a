package session

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// New creates a session: it grants a lease (one request) and starts the
// goroutine that renews it. ctx bounds the creation only; without a deadline of
// its own it ends after 10 s. If an answer of the server is lost, a lease without
// keys exists until its TTL is over. If the answer comes later than that, another
// lease is granted.
//
// The errors are those of ctx, of etcd (wrapped) and of invalid options, and
// [ErrLost] if the client is closed. A nil context or client panics.
func New(ctx context.Context, c *clientv3.Client, opts ...Option) (*Session, error) {
	if ctx == nil {
		panic("session: New needs a context")
	}
	if c == nil {
		panic("session: New needs a client")
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return create(ctx, context.Background(), c, collect(opts), func(error) {})
}

// create grants a lease and starts its session. It tries until ctx ends; a failure after the end of life is
// final. Each attempt is reported to attempted.
func create(ctx, life context.Context, c *clientv3.Client, o options, attempted func(error)) (*Session, error) {
	seconds, err := o.seconds()
	if err != nil {
		return nil, err
	}
	for {
		var granted *clientv3.LeaseGrantResponse
		var sent time.Duration
		grant := func(ctx context.Context) (err error) {
			if err = request.CheckClient(c); err == nil { // a closed client would retry a hundred times
				sent = o.now()
				granted, err = c.Grant(ctx, seconds)
			}
			return err
		}
		err := request.Repeat(ctx, life, func(limit time.Duration) (timedOut bool, err error) {
			timedOut, err = request.Attempt(ctx, context.Background(), limit, grant)
			attempted(err)
			return timedOut, err
		})
		if err != nil {
			return nil, fmt.Errorf("session: creating a lease: %w", request.Explain(c, err))
		}
		ttl := time.Duration(granted.TTL) * time.Second
		margin, err := o.marginFor(ttl)
		if err != nil {
			// If this fails, the lease runs out.
			_ = revoke(ctx, c, granted.ID)
			return nil, err
		}
		if o.now() < sent+ttl-margin {
			s := start(c, granted.ID, ttl, margin, sent, o)
			_ = s.link.Observe(granted.ResponseHeader) // the first header is always accepted
			return s, nil
		}
	}
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, defaultTimeout)
}

func start(c *clientv3.Client, lease clientv3.LeaseID, ttl, margin, sent time.Duration, o options) *Session {
	s := &Session{
		client:   c,
		lease:    lease,
		ttl:      ttl,
		margin:   margin,
		now:      o.now,
		logger:   o.logger.With("lease", fmt.Sprintf("%x", lease)),
		change:   o.change,
		closing:  make(chan bool, 1),
		outcomes: make(chan Renewal, 1),
		renewal:  o.renewal,
		renewed:  sent,
		deadline: sent + ttl - margin,
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.link = link.New(owner{s}, s.logger)
	s.closing <- false
	s.endWithClient()
	s.mu.Lock()
	s.watchdog = time.AfterFunc(s.deadline-s.now(), s.guard)
	s.mu.Unlock()
	s.running.Go(s.keepAlive)
	return s
}

// endWithClient ends the session as lost when its client is closed: nothing can renew it any more.
// The client's context ends then, but also with the one in its Config, which closes nothing.
func (s *Session) endWithClient() {
	if s.client.Ctx() == nil {
		return
	}
	stop := context.AfterFunc(s.client.Ctx(), func() {
		for conn := s.client.ActiveConnection(); conn != nil; {
			state := conn.GetState()
			if state == connectivity.Shutdown {
				break
			}
			if !conn.WaitForStateChange(s.ctx, state) {
				return
			}
		}
		s.lose(request.ErrClientClosed)
	})
	context.AfterFunc(s.ctx, func() { stop() })
}
