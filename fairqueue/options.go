package fairqueue

import "time"

const (
	defaultRecheck = 10 * time.Second
	longestRecheck = 24 * time.Hour // so that a few times as long is still a time
)

// Option changes a default of [New].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	label   string
	recheck time.Duration
	foreign bool
	slots   bool
}

// WithLabel adds a text to the owner information of this queue's tickets, for
// example what the lock is wanted for. With one of more than 512 bytes every join fails with
// [ErrTooLarge]. The default is none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.label = label })
}

// WithRecheck sets how long a waiter waits, give or take half, before it looks at
// the queue without an event. It bounds how long a lost event
// can delay it. The default is 10 s; values that are not positive keep it, and more than a day is a
// day. If there were more than 2,000 tickets when it came, it waits longer at first, up to six
// times as long, and each time half as long as before, until it is down to d.
func WithRecheck(d time.Duration) Option {
	return optionFunc(func(o *options) {
		if d > 0 {
			o.recheck = min(d, longestRecheck)
		}
	})
}

// WithSlots gives every permit of this queue a number, see [Ticket.Slot]. All users of the
// semaphore give the option, or none does: others get a [*SizeError], until [Queue.Forget]. The
// default is no numbers.
func WithSlots() Option {
	return optionFunc(func(o *options) { o.slots = true })
}

// WithOtherPrograms says that other programs, with etcd's concurrency package for example, use the
// queue as well. They take every key below the prefix for a ticket, so nothing but tickets is
// written there. The default is that a key of the library's own may be: see Epochs in the package
// documentation.
func WithOtherPrograms() Option {
	return optionFunc(func(o *options) { o.foreign = true })
}
