package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
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
	alone  bool        // nobody else wanted it when that was asked for the first time
	lost   error       // nil as far as has been heard
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

// aloneLimit is how long others may wait because of a question that is not answered.
const aloneLimit = 250 * time.Millisecond

// isAlone asks whether nobody else wants o: those who do by now must not wait until that is heard. It
// is called with mu held, and unlocks it meanwhile; o stays held by a place.
func (l *line) isAlone(ctx context.Context, o *ownership) bool {
	l.mu.Unlock()
	defer l.mu.Lock()
	ctx, cancel := session.Grace(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, aloneLimit)
	defer stop()
	alone, err := o.ticket.Alone(ctx)
	return err == nil && alone
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
		pause(ctx, observeAgain)
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
