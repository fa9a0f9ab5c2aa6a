package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
)

// Token is a fencing token: the revision of etcd at which the key of a hold was created. For one
// lock it rises strictly from owner to owner, so a store that has seen a token can refuse lower
// ones. Zero is lower than every token.
type Token int64

// Hold is one ownership of a lock, from Lock to Unlock or loss. It is safe for
// concurrent use.
type Hold struct {
	lock   *lock
	claim  claim
	ticket *fairqueue.Ticket // of claim
	values context.Context   // given to Lock, for Context
	since  time.Time         // of the grant; zero: there are no hooks to call

	// outer ends the hold when it ends: a session, or a hold that this one is a part of.
	outer interface {
		Err() error
		Context() context.Context
	}
	mu     sync.Mutex
	reason error           // of the end, once it has been noticed
	ctx    context.Context // costs more than the rest of a hold; nil until it is asked for
	cancel context.CancelCauseFunc
	losses []func(error) // to call after a loss
	detach func() bool   // from outer; nil while ctx and losses are

	sharing  atomic.Bool // an upgradeable hold, or a writer's that was downgraded
	changing atomic.Bool // from one to the other
	unlocked atomic.Bool
	loss     atomic.Pointer[error] // that Unlock has reported, for Do; nil: none
}

func newHold(ctx context.Context, l *lock, c claim) *Hold {
	t := c.ticket()
	h := &Hold{lock: l, claim: c, ticket: t, values: ctx, outer: t.Session()}
	h.sharing.Store(l.kind == kindUpgradeable)
	c.bind(h)
	return h
}

// Name returns the name of the lock.
func (h *Hold) Name() string {
	h.bound()
	return h.lock.name
}

// Key returns the key of this hold in etcd; of several, the first.
func (h *Hold) Key() string { return h.bound().Key() }

// Token returns the fencing token. It never changes.
func (h *Hold) Token() Token { return Token(h.bound().Revision()) }

// Done returns a channel that is closed when the hold ends: by Unlock, or by a loss. A loss closes
// it before another client can have the lock, unless the key or lease was removed by hand.
func (h *Hold) Done() <-chan struct{} { return h.Context().Done() }

// Err returns nil while the lock is held as far as this process can know. Afterwards it wraps
// [ErrLost], or it is [ErrClosed] if the session was closed, or [ErrUnlocked]. It compares the
// deadline with the clock, so it is right even after the process was suspended. No request is made.
func (h *Hold) Err() error {
	h.bound()
	if reason := h.ended(); reason != nil {
		return reason
	}
	if err := h.outer.Err(); err != nil {
		return h.end(err)
	}
	return nil
}

// Context returns a context that ends when the hold does, with Err as its cause. It has the values
// of the context given to Lock, but does not end with it.
func (h *Hold) Context() context.Context {
	// Not with mu held: a loss that is noticed here is logged, and the reader of the log may ask the hold.
	_ = h.Err()
	return h.context()
}

// context is Context without a look at the clock, for what needs to know of the end only when it comes.
func (h *Hold) context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(carry(h.values, h)))
		if h.reason != nil {
			h.cancel(h.reason)
		} else {
			h.attach()
		}
	}
	return h.ctx
}

// attach has the end of outer noticed at once. It requires mu.
func (h *Hold) attach() {
	if h.detach != nil {
		return
	}
	var outer context.Context
	if base, ok := h.outer.(*Hold); ok {
		outer = base.context()
	} else {
		outer = h.outer.Context()
	}
	h.detach = context.AfterFunc(outer, func() { _ = h.Err() })
}

// end ends the hold, and returns the reason. The first one counts.
func (h *Hold) end(reason error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason == nil {
		h.reason = reason
		if h.detach != nil {
			h.detach()
		}
		if h.ctx != nil {
			h.cancel(reason)
		}
		if !errors.Is(reason, ErrUnlocked) {
			for _, f := range h.losses {
				go f(reason)
			}
		}
	}
	return h.reason
}

// ended returns the reason of the end, as far as it has been noticed, or nil.
func (h *Hold) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}

// Deadline returns the instant until which the hold may be trusted if no further renewal is
// answered. See [Hold.Ensure].
func (h *Hold) Deadline() time.Time { return h.bound().Session().Deadline() }

// Ensure returns nil if the hold may be trusted for at least d from now. If less is left, it renews
// the session first, with one request. Use it before a step that needs that much time. It fails with
// ctx's error, with the end of the hold, or if d is more than the session's TTL less its margin: then
// a longer TTL is needed.
func (h *Hold) Ensure(ctx context.Context, d time.Duration) (err error) {
	h.ready(ctx)
	defer func() { err = failed("ensure", h.lock.name, err) }()
	if err := h.Err(); err != nil {
		return err
	}
	if time.Until(h.Deadline()) >= d {
		return nil
	}
	if err := h.ticket.Session().Renew(ctx); err != nil {
		return h.orEnd(err)
	}
	if left := time.Until(h.Deadline()); left < d {
		return fmt.Errorf("a session of TTL %v can be trusted for %v at most, not for %v",
			h.ticket.Session().TTL(), left.Round(time.Millisecond), d)
	}
	return h.Err()
}

// orEnd adds how the hold has ended, if it has, to err: the context of the call may have ended with it.
func (h *Hold) orEnd(err error) error {
	if end := h.Err(); err != nil && end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (%w)", end, err)
	}
	return err
}

// Guard returns a comparison that makes an etcd transaction take effect only while the key of this
// hold exists. [Hold.Txn] adds it, and reports a loss as such. A hold of several keys (of a Multi, of
// AnyN, of a numbered permit) needs all its Guards.
func (h *Hold) Guard() clientv3.Cmp { return h.bound().Guards()[0] }

// Guards returns the comparisons for all keys of the hold; most have one.
func (h *Hold) Guards() []clientv3.Cmp { return h.bound().Guards() }

// Unlock ends the hold and releases the lock: one round trip. Only the first call does anything;
// later ones return nil.
//
// If the hold has been lost, or its session is lost before the release is confirmed, the error
// wraps [ErrLost] (or [ErrClosed]), and no key of a new owner is touched. If etcd does not answer
// before ctx ends, the error wraps ctx's, and the session goes on releasing in the background until
// that is confirmed or its lease is over. Even if ctx is over, etcd gets 250 ms.
//
// With [WithMinHold], the lock stays taken until that time is over. Unlock returns before, after two
// round trips.
func (h *Hold) Unlock(ctx context.Context) error {
	h.ready(ctx)
	return failed("unlock", h.lock.name, h.unlock(ctx))
}

func (h *Hold) unlock(ctx context.Context) error {
	if h.unlocked.Swap(true) {
		return nil
	}
	_ = h.Err() // notices a loss
	lost := h.end(ErrUnlocked)
	if errors.Is(lost, ErrUnlocked) { // or a term that was transferred has ended with that
		lost = nil
	}
	err := cmp.Or(lost, h.claim.release(ctx))
	if lost != nil || errors.Is(err, fairqueue.ErrGone) { // a session that ends meanwhile is no loss to Do
		h.loss.Store(&err)
	}
	h.released(lost != nil, failed("unlock", h.lock.name, err))
	return err
}

// releaseTimeout is how long a release is waited for where there is no context for it.
const releaseTimeout = 5 * time.Second

// discard is Unlock where no caller takes its error. What is not confirmed in time the session goes on with.
func (h *Hold) discard() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.values), releaseTimeout)
	defer cancel()
	_ = h.Unlock(ctx)
}

// onLoss calls f, in a goroutine of its own, if h ends otherwise than by Unlock. It makes no context, which would cost
// every hold of a lock with hooks.
func (h *Hold) onLoss(f func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.reason == nil:
		h.losses = append(h.losses, f)
		h.attach()
	case !errors.Is(h.reason, ErrUnlocked):
		go f(h.reason)
	}
}

// gone ends the hold because a key of it is missing, as err says, and returns how it has ended. The
// first reason counts.
func (h *Hold) gone(err error) error {
	h.claim.gone(err)
	return cmp.Or(h.Err(), ErrUnlocked) // the latter while a Transfer decides
}
