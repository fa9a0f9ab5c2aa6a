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

// keepAlive renews the lease until the session ends, every ttl/3. The first attempt is a message on a stream, if there
// is one, and the others are calls. For each call
// the client's balancer takes the next endpoint: one that swallows packets costs an
// attempt, not the session. But the balancer serves all other requests
// of the client as well, so any attempt may meet that endpoint again. Hence the next attempt
// starts after a share of the time that is left, and there
// are eight or more before the deadline. Starting an attempt does not cancel earlier ones:
// where every answer takes long, the earliest is answered first.
func (s *Session) keepAlive() {
	defer s.watchdog.Stop()
	stream := joinRenewals(s)
	defer stream.leave(s)
	defer s.reportEnd()
	timer := time.NewTimer(s.untilRenewal()) // not ttl/3: the grant may have been slow
	defer timer.Stop()
	inFlight := 0 // since the last answer
	pause, reported := request.FirstPause, Live
	refused := false // since the last attempt started; several failures count once for the pause
	var warned time.Time
	failing := false // and that has been logged
	live := func() {
		stream.overtaken(s)
		s.report(&reported, Live, nil)
		if failing {
			s.logger.Info("lease renewals are answered again")
		}
		failing, inFlight, pause, refused = false, 0, request.FirstPause, false
		timer.Reset(s.untilRenewal())
	}
	var started time.Duration // the latest attempt, by the session's clock
	failed := func(r Renewal) {
		err := r.Err
		s.reportRenewal(r)
		s.report(&reported, s.State(), err)
		if trusted := s.remaining(); trusted > 0 && s.ctx.Err() == nil && time.Since(warned) >= logPause {
			s.logger.Warn("lease renewal failed", "error", err, "trusted_for", trusted)
			failing, warned = true, time.Now()
		}
	}
	for {
		select {
		case <-timer.C:
			if s.untilRenewal() > 0 {
				live() // Renew was called meanwhile
				continue
			}
			if inFlight > 0 {
				failed(s.outcome(started, s.unanswered()))
			}
			if refused {
				refused, pause = false, min(2*pause, s.ttl/12)
			}
			inFlight, started = inFlight+1, s.now()
			timer.Reset(s.share())
			if inFlight == 1 && stream.ask(s) {
				continue
			}
			s.running.Go(func() {
				ctx, cancel := context.WithTimeout(s.ctx, s.ttl) // later its answer would be worth nothing
				defer cancel()
				outcome := s.attempt(ctx)
				select {
				case s.outcomes <- outcome:
				case <-s.ctx.Done():
				}
			})
		case outcome := <-s.outcomes:
			switch {
			case s.ctx.Err() != nil:
				return
			case outcome.Err == nil:
				s.reportRenewal(outcome)
				live()
			case inFlight > 0 && s.untilRenewal() <= 0: // otherwise another attempt has been answered
				inFlight--
				if outcome.Err == errAgain { //nolint:errorlint // it is never wrapped
					if inFlight == 0 {
						timer.Reset(0)
					}
					continue
				}
				failed(outcome)
				timer.Reset(min(request.Jitter(pause), s.share()))
				refused = true
			}
		case <-s.ctx.Done():
			return
		}
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
