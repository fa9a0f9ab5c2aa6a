package etcdlock

import (
	"context"
	"reflect"

	"github.com/etcdlock/locks/fairqueue"
)

// A nil argument is a mistake in the program. The panic names it.

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("etcdlock: nil context")
	}
}

// need panics if value is nil, or a nil pointer or function in an interface.
func need(value any, text string) {
	switch v := reflect.ValueOf(value); {
	case !v.IsValid(), (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil():
		panic("etcdlock: " + text)
	}
}

func (l *lock) needMade() {
	if l.covers == nil {
		panic("etcdlock: a lock is made with its constructor")
	}
}

func (l *lock) ready(ctx context.Context) {
	l.needMade()
	needContext(ctx)
}

// bound returns the ticket that h is bound to, and panics for a hold that does not come from a lock.
func (h *Hold) bound() *fairqueue.Ticket {
	if h == nil || h.ticket == nil {
		panic("etcdlock: a hold comes from a lock")
	}
	return h.ticket
}

func (h *Hold) ready(ctx context.Context) {
	h.bound()
	needContext(ctx)
}
