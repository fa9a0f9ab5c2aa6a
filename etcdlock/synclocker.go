package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdlock/locks/internal/request"
)

// lockAgain is the pause after a Lock of NewLocker has failed, give or take half.
const lockAgain = time.Second

// NewLocker returns l as a sync.Locker, for code that wants one. A sync.Locker has no way to
// return an error. Failures and losses are passed to onError, which decides what to do about
// them: log it, cancel a context, end the process. It must not be nil.
//
// Lock calls onError if it cannot get the lock (the session is closed, etcd refuses), and tries
// again about a second later, for ever: when it returns, the lock is held. onError is also
// called, from a goroutine of its own, if the lock is lost before Unlock, and by Unlock if the
// release could not be confirmed within 5 s; then it goes on in the background. Unlock of a
// locker that is not locked panics, as that of a sync.Mutex does.
//
// After a loss somebody else may have the lock before the code that believes in it gets to its
// Unlock; the new owner and a new Lock here are not harmed by that Unlock. Whose it is, it cannot
// tell: an Unlock ends the hold that is oldest here, so that no other's is ended too early. If the code
// that locked again is the first to get to its own, its lock stays taken until the one that lost
// its lock has unlocked as well. So that has to be done even after a loss.
//
// Prefer [Do], or Lock with a context, wherever the code can be changed.
func NewLocker(l Locker, onError func(error)) sync.Locker {
	need(l, "NewLocker needs a lock")
	need(onError, "NewLocker needs a function for errors")
	return &syncLocker{lock: l, onError: onError}
}

type syncLocker struct {
	lock    Locker
	onError func(error)

	mu    sync.Mutex
	holds []*Hold // several if the lock is a shared one, or after a loss; the oldest first
}

func (s *syncLocker) Lock() {
	for {
		h, err := s.lock.Lock(context.Background())
		if err != nil {
			s.onError(err)
			time.Sleep(request.Jitter(lockAgain))
			continue
		}
		s.mu.Lock()
		s.holds = append(s.holds, h)
		s.mu.Unlock()
		context.AfterFunc(h.Context(), func() {
			if err := h.Err(); !errors.Is(err, ErrUnlocked) {
				s.onError(failed("hold", h.Name(), err))
			}
		})
		return
	}
}

func (s *syncLocker) Unlock() {
	s.mu.Lock()
	if len(s.holds) == 0 {
		s.mu.Unlock()
		panic("etcdlock: unlock of an unlocked locker")
	}
	h := s.holds[0]
	s.holds = s.holds[1:]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := h.Unlock(ctx); err != nil {
		s.onError(err)
	}
}
