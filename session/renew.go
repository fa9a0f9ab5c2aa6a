package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// attemptLimit is how many attempts at a renewal may be under way: while a member says that it is not
// available, etcd's client asks again without a pause in each of them.
const attemptLimit = 3

// keepAlive renews the lease until the session ends. Attempts leave every ttl/3,
// each on a stream of its own, for which the client's balancer takes the next
// endpoint: one that swallows packets costs an attempt, not the session. But the
// balancer's turn is shared with all other requests of the client, so any attempt
// may meet that endpoint again. Hence each gets a share of the time that is left before
// the next one leaves, and there are eight or more before the deadline. That is no reason to
// give it up: where every answer takes long, the oldest is the first to come.
func (s *Session) keepAlive() {
	defer s.watchdog.Stop()
	timer := time.NewTimer(s.untilRenewal()) // not ttl/3: the grant may have been slow
	defer timer.Stop()
	var underWay []*renewal // the oldest first
	answered := make(chan *renewal)
	pause, told := firstPause, Live
	failed := func(err error) {
		s.tell(&told, s.State(), err)
		s.logger.Warn("lease renewal failed", "error", err, "trusted_for", s.remaining())
	}
	var last *renewal // since the last answer
	for {
		select {
		case <-timer.C:
			if wait := s.untilRenewal(); wait > 0 {
				s.tell(&told, Live, nil) // Renew was called meanwhile
				timer.Reset(wait)
				continue
			}
			if slices.Contains(underWay, last) {
				failed(errUnanswered)
			}
			if len(underWay) == attemptLimit {
				underWay[1].giveUp()
				underWay = slices.Delete(underWay, 1, 2)
			}
			last = s.startRenewal(answered)
			underWay = append(underWay, last)
			timer.Reset(max(s.remaining()/4, s.ttl/40))
		case r := <-answered:
			i := slices.Index(underWay, r)
			if i >= 0 {
				underWay = slices.Delete(underWay, i, i+1)
			}
			wait := s.untilRenewal()
			switch {
			case r.err == nil:
				s.tell(&told, Live, nil)
				last, pause = nil, firstPause
				timer.Reset(wait)
			case i >= 0 && wait <= 0: // or it has been given up, or done by another
				failed(r.err)
				timer.Reset(jitter(pause))
				pause = min(2*pause, s.ttl/12)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// renewal is an attempt.
type renewal struct {
	giveUp context.CancelFunc
	err    error
}

var errUnanswered = errors.New("it has not been answered so far")

func (s *Session) startRenewal(answered chan<- *renewal) *renewal {
	ctx, cancel := context.WithTimeout(s.ctx, s.ttl) // later its answer would be worth nothing
	r := &renewal{giveUp: cancel}
	s.running.Go(func() {
		defer cancel()
		r.err = s.renew(ctx)
		select {
		case answered <- r:
		case <-s.ctx.Done():
		}
	})
	return r
}

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
