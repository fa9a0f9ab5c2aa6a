package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// defaultTimeout bounds New and Close where their contexts have no deadline: without
// one a request waits for as long as no member can be reached.
const defaultTimeout = 10 * time.Second

var (
	// ErrLost says that the session, and with it every lock it held, can no
	// longer be trusted: its deadline passed without an answered renewal, its
	// lease is gone, its client was closed, or etcd went back to an earlier
	// revision. It is wrapped with the cause. Stop the work that needed the lock.
	// A new session may be created at once; a [Keeper] does. With a closed client it cannot:
	// every call returns ErrLost.
	ErrLost = request.ErrLost

	// ErrClosed says that Close was called on the session or the [Keeper].
	ErrClosed = request.ErrClosed
)

// Source is what locks take: one [Session], or a [Keeper] that replaces it.
type Source interface {
	// Session returns a session that is alive as far as is known, or an error.
	Session(ctx context.Context) (*Session, error)
}

// Session is a lease that is kept alive. It is lost at once when its client is closed. It is safe for
// concurrent use.
type Session struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	ttl    time.Duration
	margin time.Duration
	now    clock
	logger *slog.Logger

	change func(Change)

	// ctx ends with the session, and its cause is the session's error. Everything that ends with
	// the session derives from it, its own goroutines included.
	ctx context.Context
	end context.CancelCauseFunc

	running sync.WaitGroup // the session's own goroutines

	link *link.Link

	// closing holds whether the lease has been revoked; taking it out is the
	// right to do that. A channel, because waiting for it ends with a context.
	closing chan bool

	outcomes chan Renewal // of those that the stream answers, one fits
	renewal  func(Renewal)

	mu       sync.Mutex
	renewed  time.Duration // when the last answered renewal was sent, by now
	deadline time.Duration // renewed + the TTL that came back - margin
	watchdog *time.Timer   // fires at a deadline
}

// Client returns the client that the session was created with.
func (s *Session) Client() *clientv3.Client { return s.client }

// Lease returns the lease to bind keys to.
func (s *Session) Lease() clientv3.LeaseID { return s.lease }

// TTL returns the lease's time to live as granted by the server, which may be
// more than was asked for. A crashed process keeps its keys for about this long.
func (s *Session) TTL() time.Duration { return s.ttl }

// Margin returns how long before the lease can expire the session counts as lost; see [WithMargin]. A holder has about
// that long to stop.
func (s *Session) Margin() time.Duration { return s.margin }

// Deadline returns the instant until which this process may trust the lease
// without another answer. Each renewal makes it later. It is an estimate on the
// clock of time.Now: Err decides.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.deadline - s.now())
}

// State returns what is known of the lease now. No request is made.
func (s *Session) State() State {
	err := s.Err()
	s.mu.Lock()
	defer s.mu.Unlock()
	return stateOf(err, s.now()-s.renewed, s.ttl)
}

// Done returns a channel that is closed when the session is lost or closed, at its
// deadline at the latest. After a suspension of the machine its timer may be late:
// call Err.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns nil while the session may be trusted, an error that wraps
// [ErrLost] once it is lost, or [ErrClosed]. It looks at the clock. No request
// is made.
func (s *Session) Err() error {
	if s.ctx == nil {
		panic("session: a Session is made with New")
	}
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.remaining() <= 0 {
		s.lose(errors.New("no renewal was answered in time"))
		return context.Cause(s.ctx)
	}
	return nil
}

// Link returns what connects the queues to the session. It is for this module's packages.
func (s *Session) Link() *link.Link { return s.link }

// owner is a session as its link knows it.
type owner struct{ *Session }

func (o owner) Lose(cause error) { o.lose(cause) }

// Context returns a context that ends when the session is lost or closed, with
// Err as its cause.
func (s *Session) Context() context.Context { return s.ctx }

// Session returns s, or the error with which it ended. It makes a Session a
// [Source].
func (s *Session) Session(context.Context) (*Session, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Renew renews the lease now instead of at the next turn, which moves the
// deadline to about TTL less margin from now: one request, tried again until
// ctx or the session ends.
func (s *Session) Renew(ctx context.Context) error {
	if err := s.link.Call(ctx, s.renew); err != nil {
		return fmt.Errorf("session: renewing: %w", err)
	}
	return nil
}

// Close ends the session: it stops the renewals, revokes the lease, which
// deletes every key bound to it, and waits until both are done. It returns nil
// if the lease is gone or the session had been lost before.
//
// If no member answers before ctx ends, an error that wraps ctx's is returned;
// nothing is renewed any more and the server drops the lease after its TTL. A
// later Close tries again. Without a deadline of its own ctx ends after 10 s; if it
// is over already, etcd still gets a quarter of a second to answer. Concurrent and
// repeated calls are fine.
func (s *Session) Close(ctx context.Context) error { return s.close(ctx, ErrClosed) }

// close is Close with the error that the session ends with, which is ErrClosed or wraps errReplaced.
func (s *Session) close(ctx context.Context, cause error) error {
	request.NeedContext(ctx)
	ctx, stop := bounded(ctx)
	defer stop()
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	s.abandon(cause)
	if err := context.Cause(s.ctx); errors.Is(err, ErrLost) && !errors.Is(err, errReplaced) {
		return nil
	}
	var revoked bool
	select {
	case revoked = <-s.closing:
		defer func() { s.closing <- revoked }()
	case <-ctx.Done():
		return fmt.Errorf("session: revoking the lease: %w", request.Ended(ctx, nil))
	}
	if revoked {
		return nil
	}
	err := Retry(ctx, func(ctx context.Context) error { return revoke(ctx, s.client, s.lease) })
	if err != nil {
		return fmt.Errorf("session: revoking the lease: %w", request.Explain(s.client, err))
	}
	revoked = true
	return nil
}

// Abandon ends the session as Close does, but leaves the lease: the server drops it, and every key bound to it, after its
// TTL. So a holder that learns of the end has that time to stop. No request is made.
func (s *Session) Abandon() { s.abandon(ErrClosed) }

func (s *Session) abandon(cause error) {
	_ = s.Err() // a loss that has not been noticed yet stays a loss
	s.mu.Lock() // no goroutine is started after this
	s.end(cause)
	s.mu.Unlock()
	s.running.Wait()
	s.link.Wait()
}

// Retry runs op, a single request to etcd that needs no session, until it is answered or ctx ends: each attempt
// gets a context that ends after a time of its own (3 s at first, up to 12 s), and failures that may pass
// (no answer, no leader, member down, too many requests) are tried again after a jittered pause. It returns an error
// that wraps ctx's when that ends, and etcd's own answer when that will not change (permission denied, no space).
// As op may be run several times, it must be repeatable. Safe for concurrent use.
func Retry(ctx context.Context, op func(context.Context) error) error {
	request.NeedContext(ctx)
	if op == nil {
		panic("session: Retry needs a function")
	}
	return request.Do(ctx, context.Background(), op)
}

// revoke gives a lease back. That it is not there any more is as good.
func revoke(ctx context.Context, c *clientv3.Client, lease clientv3.LeaseID) error {
	_, err := c.Revoke(ctx, lease)
	if request.IsAnswer(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
