package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

// watchAfter is how old a hold must be for a watch on its key: most are shorter, and
// need not pay for one.
const watchAfter = time.Second

// observeAgain is the pause after etcd refused to let the key be watched.
const observeAgain = 10 * time.Second

// Token is a fencing token: the revision of etcd at which the hold's place in line was
// created. For one lock it rises strictly from owner to owner, so a store that has seen
// a token can refuse lower ones. Zero is lower than every token.
type Token int64

// Hold is one ownership of a lock, from Lock to Unlock or loss. It is safe for
// concurrent use.
type Hold struct {
	lock  *lock
	claim claim
	since time.Time // zero if nobody is going to ask

	lifetime
	values context.Context // of the one who locked, for Context

	watch   *time.Timer   // starts to observe
	watched chan struct{} // closed when it has ended

	shared   atomic.Bool
	slot     int     // of a semaphore's permit, or -1
	tenure   *tenure // if it can be entered again
	unlocked atomic.Bool
	failure  atomic.Pointer[error]   // of the Unlock that did something, for Do; nil: none
	passing  atomic.Pointer[passing] // the Transfer of a term that is under way or succeeded; nil: none
}

func newHold(ctx context.Context, l *lock, c claim, began time.Time) *Hold {
	h := &Hold{lock: l, claim: c, values: ctx, slot: -1}
	if len(l.opts.hooks) > 0 || l.opts.minHold > 0 {
		h.since = time.Now()
	}
	h.shared.Store(len(l.covers) == 1 && l.covers[0].shared)
	if p, ok := c.(*place); ok {
		p.serve(h) // and hears of the loss for it
	} else {
		h.watched = make(chan struct{})
		h.watch = time.AfterFunc(watchAfter, h.observe)
	}
	if len(l.opts.hooks) > 0 {
		context.AfterFunc(h.Context(), func() {
			if err := h.ended(); !errors.Is(err, ErrUnlocked) {
				l.opts.lost(h, time.Since(h.since), err)
			}
		})
		l.opts.acquired(h, h.since.Sub(began))
	}
	return h
}

// observe waits for the key to vanish. It ends with the hold.
func (h *Hold) observe() {
	defer close(h.watched)
	for ctx := h.Context(); ctx.Err() == nil; {
		if err := h.claim.Lost(ctx); errors.Is(err, ErrLost) {
			if p := h.passing.Load(); p != nil {
				<-p.done // that the key is gone must not count as a loss
			}
			h.end(err)
			h.abandon()
			return
		}
		// etcd does not let us look, at the moment. The session's news still comes.
		pause(ctx, observeAgain)
	}
}

// gone ends the hold, whose key is not there any more, as err says, and returns how it ended: the first
// reason counts. While it is being passed on the transfer knows better, and others are only told
// that it is over.
func (h *Hold) gone(err error) error {
	if h.passing.Load() != nil {
		return cmp.Or(h.ended(), ErrUnlocked)
	}
	h.lose(err)
	return h.Err()
}

// abandon gives up what is left of a hold of several keys when it has lost one: it would keep
// others waiting for as long as nobody calls Unlock.
func (h *Hold) abandon() {
	if several, ok := h.claim.(interface{ Abandon() }); ok {
		several.Abandon()
	}
}

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.lock.name }

// Key returns the key in etcd that stands for this hold; of several, the first.
func (h *Hold) Key() string { return h.claim.Key() }

// Token returns the fencing token. It never changes, whatever happens to the hold.
func (h *Hold) Token() Token { return Token(h.claim.Revision()) }

// Done returns a channel that is closed when the hold ends: by Unlock, or by loss, before
// anybody else can have the lock unless its key or lease was removed by hand.
func (h *Hold) Done() <-chan struct{} { return h.Context().Done() }

// Err returns nil while the lock is held as far as can be known. Afterwards it wraps
// [ErrLost], or it is [ErrClosed] if the session was closed, or [ErrUnlocked]. It looks
// at the clock, so it is right even after the process was stopped. No request is made.
func (h *Hold) Err() error {
	h.needMade()
	if h.ended() == nil {
		err := h.claim.Session().Err()
		if err == nil && h.tenure != nil {
			err = h.tenure.base.Err()
		}
		if err != nil {
			h.end(err)
		}
	}
	return h.ended()
}

// Context returns a context with the values of the one given to Lock, which ends when
// the hold does, with Err as its cause. It does not end with the one given to Lock.
func (h *Hold) Context() context.Context {
	h.needMade()
	return h.context(func() (values, outer context.Context, why func() error) {
		values = carry(h.values, h)
		if h.tenure != nil {
			return values, h.tenure.base.Context(), h.tenure.base.Err
		}
		s := h.claim.Session()
		return values, s.Context(), s.Err
	})
}

// Deadline returns the instant until which the hold may be trusted without further
// news from etcd. Renewals move it on. See [Hold.Ensure].
func (h *Hold) Deadline() time.Time { return h.claim.Session().Deadline() }

// Ensure returns nil if the hold may be trusted for at least d from now, after renewing
// its session if need be (one request, and none if there is that much left). Use it
// before a step that must not be begun without that much time. It fails with ctx's error,
// with the end of the hold, or, if d is more than the session's TTL less its margin, with
// an error that says so: then a longer TTL is needed.
func (h *Hold) Ensure(ctx context.Context, d time.Duration) error {
	h.ready(ctx)
	return failed("ensure", h.lock.name, h.ensure(ctx, d))
}

func (h *Hold) ensure(ctx context.Context, d time.Duration) error {
	if err := h.Err(); err != nil {
		return err
	}
	if time.Until(h.Deadline()) >= d {
		return nil
	}
	if err := h.claim.Session().Renew(ctx); err != nil {
		return h.orEnd(err)
	}
	if left := time.Until(h.Deadline()); left < d {
		return fmt.Errorf("a session of TTL %v can be trusted for %v at most, not for %v",
			h.claim.Session().TTL(), left.Round(time.Millisecond), d)
	}
	return h.Err()
}

// orEnd adds how the hold has ended, if it has, to what went wrong: ctx of a call may have ended with it.
func (h *Hold) orEnd(err error) error {
	if end := h.Err(); err != nil && end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (%w)", end, err)
	}
	return err
}

// Guard returns a comparison that makes an etcd transaction take effect only while this hold
// exists on the server, whatever this process believes. For a transaction that consists of
// nothing else, [Hold.Txn] tells a loss from other failed comparisons. If the hold has several
// keys (of a Multi, of AnyN, of a numbered permit), it is about the first only: use Guards.
func (h *Hold) Guard() clientv3.Cmp { return h.claim.Guards()[0] }

// Guards returns one comparison for every key of the hold, to be given to a transaction
// together; most holds have one.
func (h *Hold) Guards() []clientv3.Cmp { return h.claim.Guards() }

// Shared reports whether others may hold the lock at the same time: readers, or a writer
// that has been downgraded. Permits of a semaphore do not count.
func (h *Hold) Shared() bool { return h.shared.Load() }

// Slot returns the number of a semaphore's permit, from 0 to size - 1, which nobody else has
// at the same time. ok is false for other holds, and for semaphores without [WithSlots].
func (h *Hold) Slot() (number int, ok bool) { return max(h.slot, 0), h.slot >= 0 }

// Unlock ends the hold and lets the next in line have the lock: one round trip. Only the
// first call does anything; later ones return nil.
//
// If the hold had been lost, or its session is lost before the release is confirmed, the error
// wraps [ErrLost] (or [ErrClosed]), and nothing of a new owner's is touched. If etcd does not
// answer before ctx ends, the error wraps ctx's, and the session goes on releasing in the
// background until that is confirmed or its lease is over. Even if ctx is over, or ends with
// the hold, etcd gets a quarter of a second.
//
// With [WithMinHold], and before that time is over, it returns at once all the same, but the
// lock stays taken until then; that costs two round trips.
func (h *Hold) Unlock(ctx context.Context) error {
	h.ready(ctx) // before the only call that does anything is spent
	if h.unlocked.Swap(true) {
		return nil
	}
	lost := h.Err() // which looks at the clock
	h.end(ErrUnlocked)
	err := h.release(ctx)
	if h.watch != nil && !h.watch.Stop() {
		bounded, cancel := request.Grace(ctx) // it may have to wait for a Transfer
		defer cancel()
		select {
		case <-h.watched:
		case <-bounded.Done():
		}
	}
	if errors.Is(err, fairqueue.ErrGone) && h.transferred(ctx) {
		err = nil
	}
	if lost != nil && !errors.Is(lost, ErrUnlocked) { // which is a term that was transferred
		err = lost
	}
	if err != nil {
		failure := failed("unlock", h.lock.name, err)
		h.failure.Store(&failure)
		err = failure
	}
	if len(h.lock.opts.hooks) > 0 {
		h.lock.opts.released(h, time.Since(h.since), err)
	}
	return err
}

func (h *Hold) release(ctx context.Context) error {
	if h.tenure != nil {
		return h.tenure.leave(ctx)
	}
	if h.lock.opts.minHold > 0 {
		if left := h.lock.opts.minHold - time.Since(h.since); left > 0 {
			return h.claim.Linger(ctx, left)
		}
	}
	return h.claim.Leave(ctx)
}
