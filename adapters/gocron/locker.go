package gocronlock

import (
	"context"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// unlockTimeout bounds an Unlock. After it the session goes on releasing in the background.
const unlockTimeout = 10 * time.Second

// Option changes a default of [NewLocker].
type Option func(*Locker)

// WithMinHold keeps the lock of a job taken for at least the returned time after it was taken, so that a scheduler
// whose clock is behind does not run the job again. The default is 0.
func WithMinHold(hold func(key string) time.Duration) Option {
	return func(l *Locker) { l.minHold = hold }
}

// WithOnLost calls f when the lock of a job that runs is lost, from a goroutine of its own. The job cannot be
// stopped by gocron. The error wraps etcdlock.ErrLost or etcdlock.ErrClosed.
func WithOnLost(f func(key string, err error)) Option {
	return func(l *Locker) { l.onLost = f }
}

// WithLockOptions passes options to the locks: hooks, a namespace, a label.
func WithLockOptions(opts ...etcdlock.Option) Option {
	return func(l *Locker) { l.options = append(l.options, opts...) }
}

// Locker is a [gocron.Locker]: a run of a job takes place on the scheduler that gets its lock. It is safe for
// concurrent use.
type Locker struct {
	sessions session.Source
	minHold  func(key string) time.Duration
	onLost   func(key string, err error)
	options  []etcdlock.Option

	mu    sync.Mutex
	holds map[string]*etcdlock.Hold
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks are bound to sessions from src, usually a session.Keeper. Close that after
// the scheduler has been shut down. No request is made.
func NewLocker(src session.Source, opts ...Option) *Locker {
	l := &Locker{sessions: src, holds: make(map[string]*etcdlock.Hold)}
	for _, o := range opts {
		o(l)
	}
	return l
}

// Lock takes the lock of a job if it is free: one round trip. Otherwise, or if etcd cannot be reached, it returns an
// error, and the scheduler leaves out this run; etcdlock.ErrBusy says that another scheduler runs the job.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	opts := l.options
	if l.minHold != nil {
		opts = append(opts[:len(opts):len(opts)], etcdlock.WithMinHold(l.minHold(key)))
	}
	if l.onLost != nil {
		lost := func(e etcdlock.Lost) { l.onLost(key, e.Err) }
		opts = append(opts[:len(opts):len(opts)], etcdlock.WithHooks(&etcdlock.Hooks{Lost: lost}))
	}
	h, err := etcdlock.NewMutex(l.sessions, key, opts...).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[key] = h
	return &lock{locker: l, key: key, hold: h}, nil
}

// Hold returns the hold of a job that this scheduler runs, for its token and guarded transactions. ok is false if it
// does not run the job.
func (l *Locker) Hold(key string) (h *etcdlock.Hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok = l.holds[key]
	return h, ok
}

type lock struct {
	locker *Locker
	key    string
	hold   *etcdlock.Hold
}

// Unlock releases the lock also if ctx is over: gocron cancels it when the scheduler is shut down.
func (l *lock) Unlock(ctx context.Context) error {
	l.locker.mu.Lock()
	if l.locker.holds[l.key] == l.hold {
		delete(l.locker.holds, l.key)
	}
	l.locker.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	return l.hold.Unlock(ctx)
}
