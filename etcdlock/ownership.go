package etcdlock

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// pauseless is less time than it takes to remove a key and to lock its name, which are two
	// requests, one after the other.
	pauseless = 50 * time.Microsecond
	// longestTrust bounds how long an ownership that is used without a pause is trusted without a question.
	longestTrust = 5 * time.Millisecond
	// confirmLimit is how long others may wait because of a question that is not answered.
	confirmLimit = 250 * time.Millisecond
)

// ownership is a hold of the process, the base, which several holds share, one after the other.
type ownership struct {
	line   *line
	ticket *fairqueue.Ticket
	base   *Hold
	listen func()      // for other processes that want it; only the first call does anything
	expiry *time.Timer // of the time for which it is kept

	// held says that a claim has it, and the turn. The goroutine that sets it to false passes the turn on: Unlock, or
	// that of a loss.
	held   atomic.Bool
	wanted atomic.Bool // by another process, as far as is known

	// The rest belongs to the claim that has the turn.
	since  time.Time // of the grant, or of the last answer that nobody else is in the queue
	grants int       // in memory since then
	asked  time.Time // when etcd last confirmed that the ticket is there; zero: never
	used   time.Time // when it was last handed on, kept or taken again
}

// begin makes t, which has been granted, the current ownership, for the claim that has the turn.
func (l *line) begin(t *fairqueue.Ticket) *ownership {
	o := &ownership{line: l, ticket: t, since: time.Now(), grants: 1}
	o.held.Store(true)
	o.base = newHold(context.Background(), &lock{name: l.single.name}, &ticketClaim{Ticket: t})
	o.listen = sync.OnceFunc(func() { go o.untilWanted() })
	o.expiry = time.AfterFunc(math.MaxInt64, func() { l.drop(o) }) // is set when it is kept
	l.current.Store(o)
	context.AfterFunc(o.base.Context(), o.ended)
	return o
}

// take is called with the turn. It reports whether a call that waits since then may have o; zero: since now.
func (o *ownership) take(ctx context.Context, waits time.Time) bool {
	if o.base.Err() != nil {
		return false
	}
	now := time.Now()
	there, alone := o.confirm(ctx, waits, now, false)
	if !there || !alone && o.wanted.Load() && o.spent(now) {
		return false
	}
	o.held.Store(true)
	o.grants++
	return true
}

// pass is called by the claim that has o. It hands o on, keeps it, or gives it back to etcd.
func (o *ownership) pass(ctx context.Context) error {
	l := o.line
	var there, alone bool
	now := time.Now()
	if waiting := l.waiting.Load() > 0; waiting || o.keeps() {
		there, alone = o.confirm(ctx, time.Time{}, now, waiting && o.spent(now))
	}
	waiting := l.waiting.Load() > 0
	switch {
	case !o.held.CompareAndSwap(true, false): // it is lost, and the turn has been passed on with that
		return o.base.ended()
	case there && waiting && (alone || !o.spent(now)), there && !waiting && o.keeps():
		l.hand(o)
		return nil
	}
	l.hand(nil)
	err := o.base.unlock(ctx) // nil if ended, at a loss, came first
	if end := o.base.ended(); !errors.Is(end, ErrUnlocked) {
		err = end
	}
	return err
}

// spent reports whether the bounds are reached for which o may be handed on.
func (o *ownership) spent(now time.Time) bool {
	return o.grants >= o.line.grants || now.Sub(o.since) >= o.line.bound
}

// keeps reports whether o may be kept if no claim waits.
func (o *ownership) keeps() bool { return o.line.idle > 0 && !o.wanted.Load() }

// retired is the context of o's session that ends when it gets no new callers.
func (o *ownership) retired() context.Context { return o.ticket.Session().Link().Retired() }

// trusted reports whether a call that waits since then may have o without a question to etcd. The ticket may have
// been removed by hand, and another process may have the lock. A goroutine that calls Lock after that
// must not be granted it. So there is a question after each pause, and every so often without one.
func (o *ownership) trusted(waits, now time.Time) bool {
	return !waits.IsZero() && o.asked.After(waits) || now.Sub(o.used) < pauseless && now.Sub(o.asked) < longestTrust
}

// confirm reports whether the ticket is there, so that a call that waits since then may have o. ask says that it has
// to be known whether others are in etcd's queue, too; alone is false if they are, or if it was not asked.
func (o *ownership) confirm(ctx context.Context, waits, now time.Time, ask bool) (there, alone bool) {
	if o.retired().Err() != nil || o.base.ended() != nil {
		return false, false
	}
	if !ask && o.trusted(waits, now) {
		o.used = now
		return true, false
	}
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, confirmLimit)
	defer stop()
	alone, err := o.ticket.Alone(ctx)
	if errors.Is(err, fairqueue.ErrGone) {
		_ = o.base.gone(err)
	}
	if err != nil {
		return false, false
	}
	o.asked, o.used = now, time.Now()
	if alone {
		o.since, o.grants = now, 0 // a process that comes later waits no longer than the bound
	} else {
		o.wanted.Store(true)
	}
	return o.base.ended() == nil, alone
}

// untilWanted gives o back when another process wants it, or its session gets no new callers. It ends with the base.
func (o *ownership) untilWanted() {
	ctx, cancel := context.WithCancel(o.base.Context())
	defer cancel()
	defer context.AfterFunc(o.retired(), cancel)()
	err := o.ticket.Wanted(ctx)
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		_ = o.base.gone(err)
	case o.base.ended() == nil: // or etcd refuses to tell
		o.wanted.Store(true)
		o.line.drop(o)
	}
}

// ended is called when the base has ended. If it was lost, the claim that has it has no turn any more.
func (o *ownership) ended() {
	o.expiry.Stop()
	if o.held.CompareAndSwap(true, false) {
		o.line.hand(nil)
	}
	o.base.discard() // so that the name of a key that is lost is free again
}
