package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/internal/request"
)

// logPause is the time between two log lines about the same trouble.
const logPause = time.Second

// renewer is the goroutine of a session. It renews the lease every ttl/3. The first attempt is a message on a stream, if
// there is one, and the others are calls. For each call the client's balancer takes the next endpoint: one that swallows
// packets costs an attempt, not the session. But the balancer serves all other requests of the client as well, so any
// attempt may meet that endpoint again. Hence the next attempt starts after a share of the time that is left, and there
// are eight or more before the deadline. Starting an attempt does not cancel earlier ones: where every answer takes long,
// the earliest is answered first.
type renewer struct {
	*Session
	stream *renewals
	timer  *time.Timer // of the next attempt

	inFlight int           // attempts since the last answer
	started  time.Duration // the latest attempt, by the session's clock
	refused  bool          // since the last attempt started; several failures count once for the pause
	pause    time.Duration

	reported State
	failing  bool // and that has been logged
	warned   time.Time
}

func (s *Session) keepAlive() {
	defer s.watchdog.Stop()
	r := &renewer{Session: s, stream: joinRenewals(s), pause: request.FirstPause, reported: Live}
	defer r.stream.leave(s)
	defer s.reportEnd()
	r.timer = time.NewTimer(s.untilRenewal()) // not ttl/3: the grant may have been slow
	defer r.timer.Stop()
	for {
		select {
		case <-r.timer.C:
			r.due()
		case outcome := <-s.outcomes:
			r.take(outcome)
		case <-s.ctx.Done():
			return
		}
	}
}

// due starts an attempt.
func (r *renewer) due() {
	if r.untilRenewal() > 0 {
		r.live() // Renew was called meanwhile
		return
	}
	if r.inFlight > 0 {
		r.failed(r.outcome(r.started, r.unanswered()))
	}
	if r.refused {
		r.refused, r.pause = false, min(2*r.pause, r.ttl/12)
	}
	r.inFlight, r.started = r.inFlight+1, r.now()
	r.timer.Reset(r.share())
	if r.inFlight == 1 && r.stream.ask(r.Session) {
		return
	}
	r.running.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, r.ttl) // later its answer would be worth nothing
		defer cancel()
		outcome := r.attempt(ctx)
		select {
		case r.outcomes <- outcome:
		case <-r.ctx.Done():
		}
	})
}

// take takes in the outcome of an attempt.
func (r *renewer) take(outcome Renewal) {
	switch {
	case r.ctx.Err() != nil:
	case outcome.Err == nil:
		r.reportRenewal(outcome)
		r.live()
	case r.inFlight == 0 || r.untilRenewal() > 0: // another attempt has been answered
	case outcome.Err == errAgain: //nolint:errorlint // it is never wrapped
		if r.inFlight--; r.inFlight == 0 {
			r.timer.Reset(0)
		}
	default:
		r.inFlight--
		r.failed(outcome)
		r.timer.Reset(min(request.Jitter(r.pause), r.share()))
		r.refused = true
	}
}

// live follows an answer.
func (r *renewer) live() {
	r.stream.overtaken(r.Session)
	r.report(&r.reported, Live, nil)
	if r.failing {
		r.logger.Info("lease renewals are answered again")
	}
	r.failing, r.inFlight, r.pause, r.refused = false, 0, request.FirstPause, false
	r.timer.Reset(r.untilRenewal())
}

// failed reports a failure.
func (r *renewer) failed(outcome Renewal) {
	r.reportRenewal(outcome)
	r.report(&r.reported, r.State(), outcome.Err)
	if trusted := r.remaining(); trusted > 0 && r.ctx.Err() == nil && time.Since(r.warned) >= logPause {
		r.logger.Warn("lease renewal failed", "error", outcome.Err, "trusted_for", trusted)
		r.failing, r.warned = true, time.Now()
	}
}

// share is the time until the next attempt, if there is no answer.
func (s *Session) share() time.Duration { return max(s.remaining()/4, s.ttl/40) }

var errUnanswered = errors.New("it has not been answered so far")

// unanswered is errUnanswered with what is wrong with the connection, if anything is.
func (s *Session) unanswered() error {
	if trouble := request.Trouble(s.client); trouble != "" {
		return fmt.Errorf("%w (%s)", errUnanswered, trouble)
	}
	return errUnanswered
}

// renew makes one request.
func (s *Session) renew(ctx context.Context) error { return s.attempt(ctx).Err }

// attempt makes one request. Its answer counts from the moment before the request was sent.
// Close waits for renewals in flight, so that none is sent after it has returned.
func (s *Session) attempt(ctx context.Context) Renewal {
	sent := s.now()
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return s.outcome(sent, context.Cause(s.ctx))
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	header, ttl, err := keepAliveOnce(ctx, s.client, s.lease)
	return s.settle(sent, header, ttl, err)
}

// keepAliveOnce does what the client's method of that name does, as a call: for a stream
// the client authenticates anew. To etcd a call is a stream of one request and one answer.
func keepAliveOnce(ctx context.Context, c *clientv3.Client, lease clientv3.LeaseID) (header *etcdserverpb.ResponseHeader, ttl int64, err error) {
	if conn := c.ActiveConnection(); conn != nil {
		call, end := context.WithCancel(ctx)
		defer end()
		var answer etcdserverpb.LeaseKeepAliveResponse
		err := conn.Invoke(call, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName,
			&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}, &answer, grpc.WaitForReady(true),
			grpc.OnFinish(func(err error) {
				if status.Code(err) == codes.Canceled {
					end() // otherwise the client retries a hundred times
				}
			}))
		if status.Code(err) != codes.Canceled || ctx.Err() != nil {
			return answer.Header, answer.TTL, clientv3.ContextError(ctx, err)
		}
		// The member is being stopped; or it is etcd's own proxy, which ends a stream that has no more requests.
	}
	answer, err := c.KeepAliveOnce(ctx, lease)
	if err != nil {
		return nil, 0, err
	}
	return answer.ResponseHeader, answer.TTL, nil
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

// extend notes an answered renewal, unless it came too late to matter.
func (s *Session) extend(sent, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now() >= s.deadline {
		return // lost: a reported loss is final
	}
	s.renewed = max(s.renewed, sent)
	s.deadline = max(s.deadline, sent+ttl-s.margin)
}

func (s *Session) remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline - s.now()
}

// lastRenewed is when the last answered renewal was sent, by the session's clock.
func (s *Session) lastRenewed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

func (s *Session) untilRenewal() time.Duration { return s.lastRenewed() + s.ttl/3 - s.now() }

// guard runs when the watchdog fires: the deadline is either reached or has
// moved on since. It does not depend on the answer to a request.
func (s *Session) guard() {
	if s.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchdog.Reset(s.deadline - s.now())
}

// lose ends the session as lost. Only the first end counts.
func (s *Session) lose(cause error) {
	loss := s.loss(cause)
	s.end(loss)
	if context.Cause(s.ctx) == loss { //nolint:errorlint // whether it is this very one
		s.logger.Error("session lost", "error", loss)
	}
}

// loss is the session's error if it is lost.
func (s *Session) loss(cause error) error {
	return fmt.Errorf("%w: lease %x: %w", ErrLost, s.lease, cause)
}
