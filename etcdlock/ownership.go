package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

// ownership is a ticket that has been granted, and may serve several holds one after the other.
// What is not constant is guarded by the line's mu.
type ownership struct {
	line   *line
	ticket *fairqueue.Ticket
	since  time.Time
	end    func() // of listening

	grants int
	held   bool        // by a place
	hold   *Hold       // that place's, if it has come that far
	wanted bool        // by another process, as far as has been heard
	lost   error       // nil as far as has been heard
	asked  time.Time   // when etcd was last asked whether the ticket is there, and said so; zero: never
	used   time.Time   // when it was last handed on, kept or taken again
	expiry *time.Timer // of the time for which it is kept
	guard  *time.Timer // starts to listen
}

// begin makes t, which has been granted, what the process owns. It is called with mu held.
func (l *line) begin(t *fairqueue.Ticket) *ownership {
	ctx, cancel := context.WithCancel(context.Background())
	s := t.Session()
	o := &ownership{line: l, ticket: t, since: time.Now()}
	detach := context.AfterFunc(s.Context(), func() { o.lose(s.Err()) })
	var listening atomic.Bool
	o.guard = time.AfterFunc(watchAfter, func() {
		if listening.CompareAndSwap(false, true) {
			o.listen(ctx)
		}
	})
	o.expiry = time.AfterFunc(time.Hour, func() { l.drop(o) })
	o.expiry.Stop()
	o.end = func() {
		detach()
		cancel()
		o.guard.Stop()
		o.expiry.Stop()
	}
	l.current = o
	return o
}

// back gives the ticket back, if there is one to be given back.
func (o *ownership) back(ctx context.Context) error {
	if o == nil {
		return nil
	}
	o.end()
	return o.ticket.Leave(ctx)
}

const (
	// pauseless is less time than it takes to remove a key and to lock its name, which are two
	// requests, one after the other.
	pauseless = 50 * time.Microsecond
	// longestTrust bounds how long an ownership that is used without a pause is trusted without a question.
	longestTrust = 5 * time.Millisecond
	// confirmLimit is how long others may wait because of a question that is not answered.
	confirmLimit = 250 * time.Millisecond
)

// trusted reports whether the next holder may have o without a question to etcd. The ticket may have
// been removed by hand, and another process may have the lock. A goroutine that calls Lock after that
// must not be granted it. So there is a question after each pause, and every so often without one.
func (o *ownership) trusted(now time.Time) bool {
	return now.Sub(o.used) < pauseless && now.Sub(o.asked) < longestTrust
}

// confirm reports whether o may go to the next holder, which may call for a question to etcd. It is called
// with mu held, and unlocks it during the question; o stays held by a place.
func (l *line) confirm(ctx context.Context, o *ownership) bool {
	now := time.Now()
	if o.trusted(now) && (len(l.waiting) == 0 || !l.spent(o)) {
		o.used = now
		return true
	}
	alone, err := l.isAlone(ctx, o)
	switch {
	case errors.Is(err, fairqueue.ErrGone):
		l.lose(o, err)
		return false
	case err != nil:
		return false
	}
	o.asked, o.used = now, time.Now()
	if o.wanted = o.wanted || !alone; alone {
		o.since, o.grants = now, 0 // others that come after the question wait for no longer than the bound
	}
	return true
}

// isAlone asks whether o's ticket is there and nobody else's. It is called with mu held, and unlocks it
// meanwhile.
func (l *line) isAlone(ctx context.Context, o *ownership) (bool, error) {
	l.mu.Unlock()
	defer l.mu.Lock()
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, confirmLimit)
	defer stop()
	return o.ticket.Alone(ctx)
}

// listen hears of the loss and, if o may be kept, of others who want it. It ends with o.
func (o *ownership) listen(ctx context.Context) {
	if o.line.idle > 0 {
		if err := o.ticket.Wanted(ctx); !errors.Is(err, ErrLost) {
			// If it cannot be found out, others have to be assumed.
			o.line.mu.Lock()
			o.wanted = true
			o.line.mu.Unlock()
			o.line.drop(o)
		}
	}
	for ctx.Err() == nil {
		if err := o.ticket.Lost(ctx); errors.Is(err, ErrLost) {
			o.lose(err)
			return
		}
		pause(ctx, watchAgain)
	}
}

func (o *ownership) lose(err error) {
	o.line.mu.Lock()
	defer o.line.mu.Unlock()
	o.line.lose(o, err)
}

// forget gives back a ticket whose key is gone already, so that its name is free again.
func (o *ownership) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = o.ticket.Leave(ctx)
}
