package etcdlock

import (
	"context"
	"errors"
	"sync"
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

// ownership is a hold of the process, the base, which several holds share, one after the other. The first group
// of fields is guarded by the line's mu, the second belongs to the goroutine that has the ownership.
type ownership struct {
	line   *line
	ticket *fairqueue.Ticket
	base   *Hold
	listen func()      // for other processes that want it; only the first call does anything
	expiry *time.Timer // of the time for which it is kept

	held   bool // by a claim; otherwise it is kept
	wanted bool // by another process, as far as is known

	since  time.Time // of the grant, or of the last answer that nobody else is in the queue
	grants int       // in memory since then
	asked  time.Time // when etcd last confirmed that the ticket is there; zero: never
	used   time.Time // when it was last handed on, kept or taken again
}

// begin makes t, which has been granted, the current ownership, for the claim that has the turn.
func (l *line) begin(t *fairqueue.Ticket) *ownership {
	o := &ownership{line: l, ticket: t, held: true, since: time.Now(), grants: 1}
	o.base = newHold(context.Background(), &lock{name: l.single.name}, &ticketClaim{Ticket: t})
	o.listen = sync.OnceFunc(func() { go o.untilWanted() })
	o.expiry = time.AfterFunc(max(l.idle, time.Second), o.drop) // which does nothing while it is held
	l.mu.Lock()
	l.current = o
	l.mu.Unlock()
	context.AfterFunc(o.base.Context(), o.ended)
	return o
}

// takeKept is called with the turn. It takes the ownership that is kept, if etcd still has it.
func (l *line) takeKept(ctx context.Context) *ownership {
	l.mu.Lock()
	o := l.current
	l.mu.Unlock()
	if o == nil {
		return nil
	}
	// Not with mu held: a loss that is noticed here is logged, and the reader of the log may ask the hold.
	there := !o.retired() && o.confirm(ctx, false) && o.base.Err() == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if there && l.current == o && !o.wanted {
		o.held = true
		o.grants++
		return o
	}
	l.current = nil
	go o.base.discard() // ends with its own time-out
	return nil
}

// pass is called by the claim that has o. It hands o on, keeps it, or gives it back to etcd.
func (o *ownership) pass(ctx context.Context) error {
	l := o.line
	l.mu.Lock()
	waiting := len(l.waiting) > 0
	useful, ask := l.current == o && !o.retired() && (waiting || o.keeps()), waiting && o.spent()
	l.mu.Unlock()
	confirmed := useful && o.confirm(ctx, ask) && o.base.ended() == nil
	l.mu.Lock()
	switch {
	case l.current != o: // it is lost, and the turn has been passed on with that
	case confirmed && len(l.waiting) > 0 && (o.grants == 0 || !o.spent()):
		o.grants++
		l.pass(o)
		l.mu.Unlock()
		return nil
	case confirmed && len(l.waiting) == 0 && o.keeps():
		o.held = false
		o.expiry.Reset(l.idle)
		l.pass(nil)
		l.mu.Unlock()
		o.listen()
		return nil
	default:
		l.current = nil
		l.pass(nil)
	}
	l.mu.Unlock()
	err := o.base.unlock(ctx) // nil if ended, at a loss, came first
	if end := o.base.ended(); !errors.Is(end, ErrUnlocked) {
		err = end
	}
	return err
}

// spent reports whether the bounds are reached for which o may be handed on.
func (o *ownership) spent() bool {
	return o.grants >= o.line.grants || time.Since(o.since) >= o.line.bound
}

// retired reports whether the session of o gets no new callers.
func (o *ownership) retired() bool { return o.ticket.Session().Link().Retired().Err() != nil }

// keeps reports whether o may be kept if no claim waits. It is called with mu held.
func (o *ownership) keeps() bool { return o.line.idle > 0 && !o.wanted }

// trusted reports whether the next hold may have o without a question to etcd. The ticket may have
// been removed by hand, and another process may have the lock. A goroutine that calls Lock after that
// must not be granted it. So there is a question after each pause, and every so often without one.
func (o *ownership) trusted(now time.Time) bool {
	return now.Sub(o.used) < pauseless && now.Sub(o.asked) < longestTrust
}

// confirm reports whether the ticket is there, so that o may be handed on or kept. ask says that it has to be known
// whether others are in etcd's queue, too.
func (o *ownership) confirm(ctx context.Context, ask bool) bool {
	now := time.Now()
	if !ask && o.trusted(now) {
		o.used = now
		return true
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
		return false
	}
	o.asked, o.used = now, time.Now()
	if alone {
		o.since, o.grants = now, 0 // a process that comes later waits no longer than the bound
		return true
	}
	o.line.mu.Lock()
	o.wanted = true
	o.line.mu.Unlock()
	return true
}

// untilWanted gives o back when another process wants it, or its session gets no new callers. It ends with the base.
func (o *ownership) untilWanted() {
	ctx, cancel := context.WithCancel(o.base.Context())
	defer cancel()
	defer context.AfterFunc(o.ticket.Session().Link().Retired(), cancel)()
	if err := o.ticket.Wanted(ctx); errors.Is(err, fairqueue.ErrGone) {
		_ = o.base.gone(err)
		return
	}
	o.line.mu.Lock()
	o.wanted = true // or etcd refuses to tell
	o.line.mu.Unlock()
	o.drop()
}

// drop gives o back if it is kept.
func (o *ownership) drop() {
	l := o.line
	l.mu.Lock()
	kept := l.current == o && !o.held
	if kept {
		l.current = nil
	}
	l.mu.Unlock()
	if kept {
		o.base.discard()
	}
}

// ended is called when the base has ended. If it was lost, the claim that has it has no turn any more.
func (o *ownership) ended() {
	o.expiry.Stop()
	l := o.line
	l.mu.Lock()
	if l.current == o {
		l.current = nil
		if o.held {
			l.pass(nil)
		}
	}
	l.mu.Unlock()
	o.base.discard() // so that the name of a key that is lost is free again
}
