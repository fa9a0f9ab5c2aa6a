package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// healthCheck calls the check of one Run.
type healthCheck struct {
	check func(context.Context) error // nil: always healthy
	every time.Duration

	turn chan struct{} // full while check is being called
}

var (
	errHangs  = errors.New("the health check does not return")
	errAborts = errors.New("the health check ended its goroutine")
)

// ask returns nil if the candidate is healthy. A check that hangs has failed; its goroutine is left
// behind, and check is not called again until it returns.
func (h *healthCheck) ask(ctx context.Context) error {
	if h.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	result := make(chan error, 1)
	select {
	case h.turn <- struct{}{}:
		go func() {
			err := errAborts
			defer func() {
				<-h.turn
				result <- err
			}()
			err = h.check(ctx)
		}()
	case <-ctx.Done():
	}
	err := errHangs
	select {
	case err = <-result:
	case <-ctx.Done():
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnhealthy, err)
	}
	return err
}

// recover waits until the candidate is healthy, or ctx ends.
func (h *healthCheck) recover(ctx context.Context) error {
	for ctx.Err() == nil && h.ask(ctx) != nil {
		pause(ctx, h.every)
	}
	return context.Cause(ctx)
}

// watch asks every so often until ctx ends or the candidate is unhealthy.
func (h *healthCheck) watch(ctx context.Context, end context.CancelCauseFunc) {
	if h.check == nil {
		return
	}
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := h.ask(ctx); err != nil {
			end(err)
			return
		}
	}
}
