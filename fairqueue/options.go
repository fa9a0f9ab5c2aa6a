package fairqueue

import "time"

// defaultRecheck is how long a waiter trusts that silence means no change.
const defaultRecheck = 10 * time.Second

// Option changes a default of [New].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	label   string
	recheck time.Duration
}

// WithLabel adds a text to the owner information of this queue's tickets, for
// example what the lock is wanted for. The default is none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.label = label })
}

// WithRecheck sets how long a waiter waits, give or take half, before it looks at
// the queue without having been told of a change. It bounds how long a lost event
// can delay it. The default is 10 s; values that are not positive keep it.
func WithRecheck(d time.Duration) Option {
	return optionFunc(func(o *options) {
		if d > 0 {
			o.recheck = d
		}
	})
}
