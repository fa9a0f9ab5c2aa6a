package etcdlock

import (
	"context"
	"sync"
	"time"

	"github.com/etcdlock/locks/internal/request"
)

// lockAgain is about the pause after a Lock of NewLocker has failed.
const lockAgain = time.Second

// NewLocker returns l as a sync.Locker, for code that needs one. Prefer [Do] wherever the code can be
// changed: a sync.Locker has no way to return an error. Failures and losses are passed to onError, which
// decides what to do about them: log it, cancel a context, end the process. It must not be nil.
//
// Lock calls onError if it cannot get the lock (the session is closed, etcd refuses), and tries again
// about a second later, until it has the lock. onError is also called, from a goroutine of its own,
// if the lock is lost before Unlock, and by Unlock if the release is not confirmed within 5 s; it goes
// on in the background. Unlock of a locker that is not locked panics, as that of a sync.Mutex does.
//
// After a loss another client may have the lock before this code calls Unlock, which does not touch that client's
// hold. If the lock is locked again here before that, there are two holds, and each Unlock ends the older one. So the
// lock stays taken until Unlock has been called once for every Lock, also after a loss.
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
		h.onLoss(func(err error) { s.onError(failed("hold", h.lock.name, err)) })
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
