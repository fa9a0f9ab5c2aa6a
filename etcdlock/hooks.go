package etcdlock

import (
	"context"
	"log/slog"
	"time"
)

// Hooks are called when something happens to a lock, for metrics and logs; see [WithHooks]. Each may
// be nil. They must be quick, must not call the lock, and may be called at the same time. If Waiting or
// Acquired panics or ends its goroutine, the ticket or the lock is given back before. Work that must
// stop when a lock is lost depends on the Hold's context instead, and session.WithOnChange reports
// changes of the session.
type Hooks struct {
	// Waiting is called by the goroutine in Lock when it is in line for a taken lock. With
	// WithLocalHandover it is called whenever Lock has to wait, with an empty Key and Token 0.
	Waiting func(Waiting)
	// Acquired is called by the goroutine in Lock or TryLock when it has the lock.
	Acquired func(Acquired)
	// Released is called by the goroutine in Unlock before it returns, with its error. If a loss was
	// noticed before, Lost is called as well.
	Released func(Released)
	// Lost is called from a goroutine of its own when a hold ends otherwise than by Unlock. A loss that
	// only the release notices is in the Err of Released. After a suspension of the machine it may come
	// late; Err of the hold does not.
	Lost func(Lost)
}

// Waiting is the argument of the hook of that name.
type Waiting struct {
	Name string // of the lock
	Key  string // of the ticket; empty if the wait is in memory
	// Token is that of the hold to come, or 0 if it is not known yet: in memory, and for a permit WithSlots.
	// A candidate of an Election that is passed over joins again, and gets a higher one.
	Token Token
}

// Acquired is the argument of the hook of that name.
type Acquired struct {
	Name   string
	Key    string
	Token  Token
	Waited time.Duration // since the call of Lock
}

// Released is the argument of the hook of that name.
type Released struct {
	Name  string
	Key   string
	Token Token
	Held  time.Duration
	Err   error
}

// Lost is the argument of the hook of that name.
type Lost struct {
	Name  string
	Key   string
	Token Token
	Held  time.Duration
	Err   error // why; wraps ErrLost, or ErrClosed
}

// WithHooks makes the lock call hooks; with several such options, all of them. The default is none.
func WithHooks(hooks *Hooks) Option {
	return optionFunc(func(o *options) {
		if hooks != nil {
			o.hooks = append(o.hooks, hooks)
		}
	})
}

// WithLogger logs waits, acquisitions and releases at level Debug, failed releases and losses at
// Warn. The default is no log.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		return optionFunc(func(*options) {})
	}
	log := func(level slog.Level, message, name string, token Token, more ...any) {
		l.Log(context.Background(), level, message, append([]any{"lock", name, "token", int64(token)}, more...)...)
	}
	return WithHooks(&Hooks{
		Waiting: func(w Waiting) { log(slog.LevelDebug, "waiting for lock", w.Name, w.Token, "key", w.Key) },
		Acquired: func(a Acquired) {
			log(slog.LevelDebug, "lock acquired", a.Name, a.Token, "key", a.Key, "waited", a.Waited)
		},
		Released: func(r Released) {
			if r.Err != nil {
				log(slog.LevelWarn, "lock not released cleanly", r.Name, r.Token, "key", r.Key, "held", r.Held, "error", r.Err)
				return
			}
			log(slog.LevelDebug, "lock released", r.Name, r.Token, "key", r.Key, "held", r.Held)
		},
		Lost: func(e Lost) {
			log(slog.LevelWarn, "lock lost", e.Name, e.Token, "key", e.Key, "held", e.Held, "error", e.Err)
		},
	})
}

func (o *options) waiting(l *lock, c claim) {
	if len(o.hooks) == 0 {
		return
	}
	callOrUndo(func() {
		for _, h := range o.hooks {
			if h.Waiting != nil {
				h.Waiting(Waiting{l.name, c.Key(), Token(c.Revision())})
			}
		}
	}, func() {
		over, end := context.WithCancel(context.Background())
		end()
		_ = c.Wait(over) // which gives it up
	})
}

// timeForHooks reads the clock if there are hooks.
func (o *options) timeForHooks() (now time.Time) {
	if len(o.hooks) > 0 {
		now = time.Now()
	}
	return now
}

// granted calls the hooks for an acquisition, and has a loss call them.
func (o *options) granted(h *Hold, began time.Time) {
	if len(o.hooks) == 0 {
		return
	}
	h.since = time.Now()
	h.onLoss(func(err error) { o.lost(h, err) })
	callOrUndo(func() {
		for _, hooks := range o.hooks {
			if hooks.Acquired != nil {
				hooks.Acquired(Acquired{h.Name(), h.Key(), h.Token(), h.since.Sub(began)})
			}
		}
	}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		_ = h.Unlock(ctx) // if it cannot be confirmed, the session goes on with it
	})
}

// callOrUndo calls undo if call does not return: it panics, or ends its goroutine.
func callOrUndo(call, undo func()) {
	returned := false
	defer func() {
		if !returned {
			undo()
		}
	}()
	call()
	returned = true
}

func (o *options) released(h *Hold, err error) {
	if h.since.IsZero() {
		return
	}
	for _, hooks := range o.hooks {
		if hooks.Released != nil {
			hooks.Released(Released{h.Name(), h.Key(), h.Token(), time.Since(h.since), err})
		}
	}
}

func (o *options) lost(h *Hold, err error) {
	for _, hooks := range o.hooks {
		if hooks.Lost != nil {
			hooks.Lost(Lost{h.Name(), h.Key(), h.Token(), time.Since(h.since), err})
		}
	}
}
