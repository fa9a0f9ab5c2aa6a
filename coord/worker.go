package coord

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/request"
)

// workAgain is the pause, give or take half, after a work has returned nil.
const workAgain = 500 * time.Millisecond

// errAborted says that a work has ended its goroutine.
var errAborted = errors.New("it ended its goroutine")

// start starts the worker of a shard. It ends with t or by its stop, and reports its end.
func (t *tenure) start(shard int) {
	ctx, stop := context.WithCancelCause(t.ctx)
	t.workers[shard] = stop
	t.running.Go(func() {
		defer func() { t.ended <- shard }()
		defer stop(nil)
		for failures := 0; ctx.Err() == nil; failures++ {
			if began := t.once(ctx, shard); began {
				failures = 0
			}
			request.Sleep(ctx, ctx, request.BackOff(failures))
		}
	})
}

// once waits for the shard and works on it, until ctx ends, the shard is lost, or something fails. It reports whether it has
// had the shard.
func (t *tenure) once(ctx context.Context, shard int) (began bool) {
	var hold *etcdlock.Hold
	var failed error // of the work
	err := etcdlock.Do(ctx, t.shards.lock(shard, t.id), func(ctx context.Context, h *etcdlock.Hold) error {
		hold = h
		failed = t.repeat(ctx, h, shard)
		return failed
	})
	if hold == nil {
		if ctx.Err() == nil && !errors.Is(err, etcdlock.ErrLost) && !request.Passing(err) {
			t.fail(fmt.Errorf("shard %d: %w", shard, err))
		}
		return false
	}
	// The work may return the loss of another lock. If only the release has noticed the loss of this one, Do has added it.
	lost := !errors.Is(hold.Err(), etcdlock.ErrUnlocked) || isLoss(err) && !isLoss(failed)
	switch {
	case failed == nil, lost, isLoss(context.Cause(ctx)):
		// After a loss an error is to be expected. If the session is lost, t ends.
	case ctx.Err() == nil || !isEnd(failed):
		t.fail(fmt.Errorf("the work of shard %d: %w", shard, failed))
	}
	return true
}

// isLoss reports whether err is the end of a session or of a hold.
func isLoss(err error) bool {
	return errors.Is(err, etcdlock.ErrLost) || errors.Is(err, etcdlock.ErrClosed)
}

// isEnd reports whether err is that of a context.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrReassigned)
}

// repeat calls the work until it fails or ctx ends.
func (t *tenure) repeat(ctx context.Context, h *etcdlock.Hold, shard int) error {
	for {
		if err := t.call(ctx, h, shard); err != nil || ctx.Err() != nil {
			return err
		}
		if !request.Sleep(ctx, ctx, request.Jitter(workAgain)) {
			return nil
		}
	}
}

// call calls the work. If it panics or ends its goroutine, t ends.
func (t *tenure) call(ctx context.Context, h *etcdlock.Hold, shard int) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			t.fail(fmt.Errorf("the work of shard %d: %w", shard, errAborted))
			return
		}
		t.mu.Lock()
		t.panicked = &PanicError{Shard: shard, Value: value, Stack: debug.Stack()}
		t.mu.Unlock()
		t.end()
	}()
	err := t.work(ctx, h, shard)
	returned = true
	return err
}
