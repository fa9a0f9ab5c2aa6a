package tusdlock

import (
	"context"
	"errors"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// unlockTimeout bounds an Unlock. After it the session goes on releasing in the background.
const unlockTimeout = 10 * time.Second

// Locker is a [handler.Locker]. It is safe for concurrent use.
type Locker struct {
	sessions session.Source
	options  []etcdlock.Option
}

var _ handler.Locker = (*Locker)(nil)

// New returns a Locker whose locks are bound to sessions from src, usually a session.Keeper. Close that after the HTTP server
// has been shut down. The locks have the names of the uploads; an option may give them a namespace of their own. No
// request is made.
func New(src session.Source, opts ...etcdlock.Option) *Locker {
	return &Locker{sessions: src, options: opts}
}

// UseIn makes composer use the locker.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock returns the lock of an upload. No request is made.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	return &lock{mutex: etcdlock.NewMutex(l.sessions, id, l.options...)}, nil
}

// lock is for one request to tusd, which locks and unlocks it once.
type lock struct {
	mutex *etcdlock.Mutex
	hold  *etcdlock.Hold
}

// Lock waits for the lock of the upload. If ctx ends before, it returns [handler.ErrLockTimeout]. It calls requestUnlock, from a
// goroutine of its own, if another request wants the lock, or if the lock is lost.
func (l *lock) Lock(ctx context.Context, requestUnlock func()) error {
	h, err := l.mutex.Lock(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return handler.ErrLockTimeout // as it is: tusd makes an answer of its type only
		}
		return err
	}
	l.hold = h
	go watch(h, requestUnlock) // ends with the hold
	return nil
}

// watch calls requestUnlock if h is wanted or lost.
func watch(h *etcdlock.Hold, requestUnlock func()) {
	if err := h.Wanted(context.Background()); err != nil {
		<-h.Done() // so it is in nearly every case; but etcd may refuse to be watched
	}
	if !errors.Is(h.Err(), etcdlock.ErrUnlocked) {
		requestUnlock()
	}
}

// Unlock releases the lock: one round trip. If the lock has been lost the error wraps etcdlock.ErrLost.
func (l *lock) Unlock() error {
	if l.hold == nil {
		return etcdlock.ErrNotHeld
	}
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	return l.hold.Unlock(ctx)
}
