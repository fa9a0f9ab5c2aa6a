package etcdlock

import (
	"context"

	"github.com/etcdlock/locks/session"
)

// takeIdle takes what is kept. It is called with mu held, and may unlock it meanwhile.
func (l *line) takeIdle(ctx context.Context) *place {
	o := l.current
	if o == nil {
		return nil
	}
	s := o.ticket.Session()
	switch {
	case s.Context().Err() != nil:
		l.lose(o, s.Err()) // before that has been heard
		return nil
	case o.held || o.wanted:
		return nil
	}
	p := &place{line: l}
	p.take(o) // before mu is unlocked
	o.expiry.Stop()
	if err := l.look(s); err != nil {
		l.lose(o, err)
		return nil
	}
	if l.confirm(ctx, o) && o.lost == nil && !o.wanted {
		return p
	}
	if l.giveUp(o); o.lost == nil {
		go o.forget() // ends with its own time-out
	}
	return nil
}

// look returns how s ended, by the clock. It is called with mu held, and unlocks it meanwhile: the
// session writes to its log what it finds out, and a reader of the log may ask a hold.
func (l *line) look(s *session.Session) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	return s.Err()
}

// drop gives o back if nobody holds it.
func (l *line) drop(o *ownership) {
	l.mu.Lock()
	idle := l.current == o && !o.held
	if idle {
		l.current = nil
		l.join()
	}
	l.mu.Unlock()
	if idle {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		_ = o.back(ctx) // if it cannot be confirmed, the session goes on with it
	}
}
