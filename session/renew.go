package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// keepAlive renews the lease until the session ends. Attempts leave every ttl/3,
// each on a stream of its own, for which the client's balancer takes the next
// endpoint: one that swallows packets costs an attempt, not the session. But the
// balancer's turn is shared with all other requests of the client, so any attempt
// may meet that endpoint again. Hence each gets a share of the time that is left before
// the next one leaves, and there are eight or more before the deadline. None is given up
// for that: where every answer takes long, the first is the first to come.
func (s *Session) keepAlive() {
	defer s.watchdog.Stop()
	told := Live
	for sleep(s.ctx, s.ctx, s.untilRenewal()) { // not ttl/3: the grant may have been slow
		s.renewInTime(&told)
	}
}

// renewInTime makes attempts until one of them is answered, or the session ends.
func (s *Session) renewInTime(told *State) {
	over := make(chan struct{})
	defer close(over)
	answers := make(chan error)
	failed := func(err error) {
		s.tell(told, s.State(), err)
		s.logger.Warn("lease renewal failed", "error", err, "trusted_for", s.remaining())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause, underWay := firstPause, 0; ; {
		select {
		case <-timer.C:
			if s.untilRenewal() > 0 {
				s.tell(told, Live, nil) // Renew was called meanwhile
				return
			}
			if underWay > 0 {
				failed(errUnanswered)
			}
			underWay++
			timer.Reset(max(s.remaining()/4, s.ttl/40))
			s.running.Go(func() {
				ctx, cancel := context.WithTimeout(s.ctx, s.ttl) // later its answer would be worth nothing
				defer cancel()
				err := s.renew(ctx)
				select {
				case answers <- err:
				case <-over:
				}
			})
		case err := <-answers:
			if err == nil {
				s.tell(told, Live, nil)
				return
			}
			if s.ctx.Err() != nil {
				return
			}
			underWay--
			failed(err)
			timer.Reset(jitter(pause))
			pause = min(2*pause, s.ttl/12)
		case <-s.ctx.Done():
			return
		}
	}
}

var errUnanswered = errors.New("it has not been answered so far")

// renew makes one request. Its answer counts from the moment before it left.
// Close waits for those under way, so that none leaves after it has returned.
func (s *Session) renew(ctx context.Context) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return context.Cause(s.ctx)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()

	sent := s.now()
	answer, err := s.client.KeepAliveOnce(ctx, s.lease)
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound // how the server says it
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.lose(err)
		return err
	case err != nil:
		return err
	}
	s.extend(sent, time.Duration(answer.TTL)*time.Second)
	return s.Err()
}

// extend notes an answered renewal, unless it came too late to matter.
func (s *Session) extend(sent, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now() >= s.deadline {
		return // lost: what others have been told cannot be taken back
	}
	s.renewed = max(s.renewed, sent)
	s.deadline = max(s.deadline, sent+ttl-s.margin)
}

func (s *Session) remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline - s.now()
}

func (s *Session) untilRenewal() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed + s.ttl/3 - s.now()
}

// guard runs when the watchdog goes off: the deadline is either reached or has
// moved on since. It does not depend on a pending request coming back.
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
	loss := fmt.Errorf("%w: lease %x: %w", ErrLost, s.lease, cause)
	s.end(loss)
	if context.Cause(s.ctx) == loss { //nolint:errorlint // whether it is this very one
		s.logger.Error("session lost", "error", loss)
	}
}
