package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const (
	campaignAgain     = 500 * time.Millisecond // after a term
	campaignRetry     = 100 * time.Millisecond // after a failure, at first
	longCampaignRetry = 10 * time.Second
)

// Run is a candidate for as long as ctx lasts: it campaigns with value, calls lead while it leads,
// resigns when lead has returned, and campaigns again. lead's context ends with ctx, with the term (at
// the session's deadline at the latest, before another candidate can lead), or when the health check
// fails ([WithHealthCheck]); its cause says why. lead must return then. The session is kept alive
// until it has, so a leader that stops slowly delays the next one, unless etcd cannot be reached.
//
// Run returns only
//
//   - when ctx has ended and lead has returned: an error that wraps ctx's cause, and lead's error,
//     unless that is a context's;
//   - when lead returns an error or panics although the term was neither lost nor ended by the
//     health check: that error, unwrapped, or the panic, after resigning (if lead has resigned
//     itself, a context's error does not count);
//   - when campaigning fails for good: the session, the Keeper or the client is closed, a session
//     that is not of a Keeper is lost, the name is invalid, the value is too large, or etcd refuses
//     (permission denied, no space).
//
// It campaigns again after about half a second when lead has returned nil or the term was lost, and
// when a failed health check succeeds. Temporary failures are retried after 0.1 s to 10 s. src should be
// a session.Keeper.
func (e *Election) Run(ctx context.Context, value string, lead func(ctx context.Context, t *Term) error) error {
	e.ready(ctx)
	need(lead, "Run needs a function to lead with")
	retry := campaignRetry
	health := &healthCheck{check: e.opts.health, every: e.opts.every, turn: make(chan struct{}, 1)}
	for {
		if err := health.recover(ctx); err != nil {
			return failed("run", e.name, err)
		}
		term, err := e.Campaign(ctx, value)
		switch {
		case ctx.Err() != nil:
			if term != nil {
				term.discard()
			}
			return failed("run", e.name, context.Cause(ctx))
		case err != nil && !e.mayRecover(err):
			return err
		case err != nil:
			pause(ctx, retry)
			retry = min(2*retry, longCampaignRetry)
			continue
		}
		retry = campaignRetry
		if stop, err := e.lead(ctx, term, health, lead); stop {
			return err
		}
		pause(ctx, campaignAgain)
	}
}

// lead runs one term. stop says that Run is over.
func (e *Election) lead(ctx context.Context, term *Term, health *healthCheck, lead func(context.Context, *Term) error) (stop bool, err error) {
	leading, end := term.within(ctx)
	var checking sync.WaitGroup
	checking.Go(func() { health.watch(leading, end) })
	defer func() {
		// A panic of lead passes through here, too.
		end(nil)
		checking.Wait()
		term.discard() // a loss has ended lead's context
	}()
	if err := health.ask(leading); err != nil {
		end(err)
		return false, nil
	}
	err = lead(leading, term)
	cause := context.Cause(leading) // of the end of the term, if it ended before lead did
	if cause == nil {
		cause = term.Err()
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) // lead returns the end of its context
	switch {
	case ctx.Err() != nil:
		stopped := context.Cause(ctx)
		if err != nil && !ended && !errors.Is(err, stopped) {
			stopped = fmt.Errorf("%w: %w", stopped, err)
		}
		return true, failed("run", e.name, stopped)
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrClosed), errors.Is(cause, ErrUnhealthy), ended && cause != nil:
		return false, nil
	}
	return err != nil, err
}

// mayRecover reports whether a later campaign may succeed.
func (e *Election) mayRecover(err error) bool {
	if s, ok := e.source.(*session.Session); ok && s.Err() != nil || errors.Is(err, request.ErrClientClosed) {
		return false
	}
	// The Keeper's time for a new session is over.
	return errors.Is(err, ErrLost) || errors.Is(err, context.DeadlineExceeded) || request.Passing(err)
}

// pause waits for d, give or take half, or until ctx ends.
func pause(ctx context.Context, d time.Duration) { request.Sleep(ctx, ctx, request.Jitter(d)) }
