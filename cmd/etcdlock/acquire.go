package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

// acquirer takes a lock, with or without waiting.
type acquirer struct {
	lock, try func(context.Context) (*etcdlock.Hold, error)
}

// acquirer returns what takes the lock that the flags ask for.
func (r *lockFlags) acquirer(c *connection, src session.Source, name string) (acquirer, error) {
	opts := c.options()
	if r.label != "" {
		opts = append(opts, etcdlock.WithLabel(r.label))
	}
	if r.limit > 0 {
		if c.prefix {
			return acquirer{}, mistake(errors.New("--limit cannot be combined with --prefix: other programs do not count"))
		}
		return r.semaphore(src, name, opts), nil
	}
	if len(r.also) == 0 {
		m := etcdlock.NewRWMutex(src, name, append(opts, r.minimum()...)...)
		if r.shared {
			return acquirer{m.RLock, m.TryRLock}, nil
		}
		return acquirer{m.Lock, m.TryLock}, nil
	}
	var parts []etcdlock.Lockable
	for _, n := range append([]string{name}, r.also...) {
		m := etcdlock.NewRWMutex(src, n, opts...)
		if r.shared {
			parts = append(parts, m.RLocker())
		} else {
			parts = append(parts, m)
		}
	}
	m := etcdlock.NewMulti(src, parts...).With(r.minimum()...)
	return acquirer{m.Lock, m.TryLock}, nil
}

func (r *lockFlags) semaphore(src session.Source, name string, opts []etcdlock.Option) acquirer {
	if r.slots {
		opts = append(opts, etcdlock.WithSlots())
	}
	s := etcdlock.NewSemaphore(src, name, r.limit, append(opts, r.minimum()...)...)
	return acquirer{
		func(ctx context.Context) (*etcdlock.Hold, error) { return s.Acquire(ctx, r.permits) },
		func(ctx context.Context) (*etcdlock.Hold, error) { return s.TryAcquire(ctx, r.permits) },
	}
}

func (r *lockFlags) minimum() []etcdlock.Option {
	if r.minHold.Duration == 0 {
		return nil
	}
	return []etcdlock.Option{etcdlock.WithMinHold(r.minHold.Duration)}
}

// acquire takes the lock within ctx. A place in line that is lost, as during a long failure of etcd, is taken
// anew.
func (r *lockFlags) acquire(ctx context.Context, a acquirer, c *connection, src *source, name string) (*etcdlock.Hold, error) {
	waiting := ctx
	if r.waits && !r.nonblock {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, r.wait.Duration)
		defer cancel()
	}
	began := time.Now()
	take := a.lock
	if r.nonblock {
		take = a.try
	}
	defer showProgress(waiting, c, src, name)()
	for {
		hold, err := take(waiting)
		switch {
		case err == nil:
			if r.verbose {
				say("took %q after %v, token %d", name, rounded(time.Since(began)), hold.Token())
			}
			return hold, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case waiting.Err() != nil, errors.Is(err, etcdlock.ErrBusy):
			after := time.Since(began)
			if r.verbose && errors.Is(err, etcdlock.ErrBusy) {
				err = withHolder(ctx, c, src, name, err)
			}
			return nil, r.notObtained(err, name, after)
		case !errors.Is(err, etcdlock.ErrLost):
			return nil, err
		}
		say("lost the place in line for %q, joining again: %v", name, err)
	}
}

// withHolder adds to err what holds the lock, if it still does: one read, and a request for each lease in the queue.
func withHolder(ctx context.Context, c *connection, src *source, name string, err error) error {
	limited, cancel := c.limited(ctx)
	defer cancel()
	found, failed := etcdlock.Inspect(limited, src.Client, name, c.options()...)
	q := status.Describe(found)
	if failed != nil || len(q.Holders) == 0 {
		return err
	}
	first := q.Holders[0]
	return fmt.Errorf("%w: held by %s, in line for %s; %d waiting", err, ownerOf(first), since(first.Since, time.Now()), len(q.Waiters))
}

// notObtained is silent if that is what the user expects, as in flock.
func (r *lockFlags) notObtained(err error, name string, after time.Duration) error {
	if r.nonblock && !r.verbose {
		return &exitError{code: r.conflict}
	}
	var blocked *etcdlock.BlockedError
	if errors.As(err, &blocked) {
		err = blocked
	}
	return &exitError{code: r.conflict, err: fmt.Errorf("%q not obtained after %v: %w", name, rounded(after), err)}
}

// rounded leaves what people read.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
