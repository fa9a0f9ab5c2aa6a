package etcdlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// Hooks are called when something happens to a lock, for metrics and logs; see [WithHooks]. Each may be nil. They
// must be quick, must not call the lock, and may be called at the same time. If Waiting or Acquired panics or ends
// its goroutine, the ticket is removed or the lock released first, and Failed or Released is called. Work that must
// stop when a lock is lost depends on the Hold's context instead, and session.WithOnChange reports changes of the
// session.
//
// Every Waiting is followed by one Acquired or Failed with Queued, so the number of waiters is the first less the
// others. Every Acquired is followed by one Lost, or by one Released without AfterLost, so the number of holds is the
// first less the others. Entering a lock again calls no hooks.
type Hooks struct {
	// Waiting is called by the goroutine in Lock when it is in line for a taken lock. With
	// WithLocalHandover or WithRetention Key may be empty and Token 0: it is in line in memory.
	Waiting func(Waiting)
	// Acquired is called by the goroutine in Lock or TryLock when it has the lock.
	Acquired func(Acquired)
	// Failed is called by the goroutine in Lock, TryLock, Campaign or the like before it returns an error.
	Failed func(Failed)
	// Released is called by the goroutine in Unlock before it returns, with its error.
	Released func(Released)
	// Lost is called from a goroutine of its own when a hold ends otherwise than by Unlock. A loss that
	// only the release notices is in the Err of Released. After a suspension of the machine it may come
	// late; Err of the hold does not.
	Lost func(Lost)
}

// Event has the fields that the arguments of all hooks have in common. If the call had no ticket in line, Key is
// empty and Token 0.
type Event struct {
	Context context.Context // given to Lock
	Name    string          // of the lock
	Kind    string          // "mutex", "read", "write", "upgradeable", "permit", "multi" (also any of a Striped) or "election"
	Key     string
	// Token is that of the hold. While it waits for a permit WithSlots it is not known yet, and 0.
	// A candidate of an Election that is passed over joins again, and gets a higher one.
	Token Token
}

// Waiting is the argument of the hook of that name.
type Waiting struct{ Event }

// Acquired is the argument of the hook of that name.
type Acquired struct {
	Event
	Waited time.Duration // since the call of Lock
	Queued bool          // Waiting was called
}

// Failed is the argument of the hook of that name.
type Failed struct {
	Event
	Waited time.Duration // since the call of Lock
	Queued bool          // Waiting was called
	Err    error         // that the call returns; ErrBusy of a TryLock
}

// Released is the argument of the hook of that name.
type Released struct {
	Event
	Held      time.Duration
	AfterLost bool // Lost is called as well
	Err       error
}

// Lost is the argument of the hook of that name.
type Lost struct {
	Event
	Held time.Duration
	Err  error // why; wraps ErrLost, or ErrClosed
}

// WithHooks makes the lock call hooks; with several such options, all of them. The default is none.
func WithHooks(hooks *Hooks) Option {
	return optionFunc(func(o *options) {
		if hooks != nil {
			o.hooks = append(o.hooks, hooks)
		}
	})
}

// WithLogger logs waits, failures, acquisitions and releases at level Debug, failed releases and losses at
// Warn. The default is no log.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		return optionFunc(func(*options) {})
	}
	log := func(level slog.Level, message string, e Event, more ...any) {
		l.Log(e.Context, level, message, append([]any{"lock", e.Name, "token", int64(e.Token), "key", e.Key}, more...)...)
	}
	return WithHooks(&Hooks{
		Waiting:  func(w Waiting) { log(slog.LevelDebug, "waiting for lock", w.Event) },
		Acquired: func(a Acquired) { log(slog.LevelDebug, "lock acquired", a.Event, "waited", a.Waited) },
		Failed:   func(f Failed) { log(slog.LevelDebug, "lock not acquired", f.Event, "waited", f.Waited, "error", f.Err) },
		Released: func(r Released) {
			if r.Err != nil {
				log(slog.LevelWarn, "lock not released cleanly", r.Event, "held", r.Held, "error", r.Err)
				return
			}
			log(slog.LevelDebug, "lock released", r.Event, "held", r.Held)
		},
		Lost: func(e Lost) { log(slog.LevelWarn, "lock lost", e.Event, "held", e.Held, "error", e.Err) },
	})
}

// waiting is called when the claim is in line.
func (a *attempt) waiting() {
	a.queued = true
	callOrUndo(func() {
		call(a.lock, func(h *Hooks) func(Waiting) { return h.Waiting }, Waiting{a.event()})
	}, func() {
		over, end := context.WithCancel(context.Background())
		end()
		a.failed(a.claim.Wait(over)) // which gives it up
	})
}

func (a *attempt) failed(err error) {
	call(a.lock, func(h *Hooks) func(Failed) { return h.Failed }, Failed{a.event(), time.Since(a.began), a.queued, err})
}

// granted also has a loss of h call the hooks.
func (a *attempt) granted(h *Hold) {
	if len(a.lock.opts.hooks) == 0 {
		return
	}
	h.since = time.Now()
	h.onLoss(func(err error) {
		call(h.lock, func(h *Hooks) func(Lost) { return h.Lost }, Lost{h.event(), time.Since(h.since), err})
	})
	callOrUndo(func() {
		call(h.lock, func(h *Hooks) func(Acquired) { return h.Acquired }, Acquired{h.event(), h.since.Sub(a.began), a.queued})
	}, h.discard)
}

func (h *Hold) released(afterLost bool, err error) {
	if !h.since.IsZero() {
		call(h.lock, func(h *Hooks) func(Released) { return h.Released }, Released{h.event(), time.Since(h.since), afterLost, err})
	}
}

func (a *attempt) event() Event {
	if a.claim == nil {
		return a.lock.event(a.ctx, nil)
	}
	return a.lock.event(a.ctx, a.claim.ticket())
}

func (h *Hold) event() Event { return h.lock.event(h.values, h.ticket) }

func (l *lock) event(ctx context.Context, t *fairqueue.Ticket) Event {
	e := Event{Context: ctx, Name: l.name, Kind: l.kind}
	if t != nil {
		e.Key, e.Token = t.Key(), Token(t.Revision())
	}
	return e
}

// call calls one hook of each of the user's.
func call[T any](l *lock, hook func(*Hooks) func(T), argument T) {
	for _, h := range l.opts.hooks {
		if f := hook(h); f != nil {
			f(argument)
		}
	}
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
