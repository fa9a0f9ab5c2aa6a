package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Token is a fencing token: the revision of etcd at which the hold's place in line was
// created. For one lock it rises strictly from owner to owner, so a store that has seen
// a token can refuse lower ones. Zero is lower than every token.
type Token int64

// Hold is one ownership of a lock, from Lock to Unlock or loss. It is safe for
// concurrent use.
type Hold struct {
	lock  *lock
	claim claim
	since time.Time // of the grant; zero without hooks

	lifetime
	values context.Context // given to Lock, for Context

	unlocked atomic.Bool
	failure  atomic.Pointer[error] // of the first Unlock, for Do; nil: none
}

func newHold(ctx context.Context, l *lock, c claim, began time.Time) *Hold {
	h := &Hold{lock: l, claim: c, values: ctx, since: l.opts.timeForHooks(), lifetime: lifetime{outer: c.Session()}}
	c.bind(h)
	l.opts.granted(h, began)
	return h
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
	return h.look()
}

// Context returns a context with the values of the one given to Lock, which ends when
// the hold does, with Err as its cause. It does not end with the one given to Lock.
func (h *Hold) Context() context.Context {
	h.needMade()
	if made := h.made(); made != nil {
		return made
	}
	return h.make(carry(h.values, h))
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
	err := h.claim.release(ctx)
	if lost != nil && !errors.Is(lost, ErrUnlocked) { // which is a term that was transferred
		err = lost
	}
	if err != nil {
		failure := failed("unlock", h.lock.name, err)
		h.failure.Store(&failure)
		err = failure
	}
	h.lock.opts.released(h, err)
	return err
}

// gone ends the hold, of which a key is missing, as err says, and returns how it has ended: the first
// reason counts.
func (h *Hold) gone(err error) error {
	h.claim.gone(err)
	return cmp.Or(h.Err(), ErrUnlocked) // the latter while a Transfer decides
}
