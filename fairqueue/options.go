package fairqueue

import "time"

const (
	// defaultRecheck is how long a waiter trusts that silence means no change.
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
	shared  bool

	numbered bool
}

// WithLabel adds a text to the owner information of this queue's tickets, for
// example what the lock is wanted for. With one of more than 512 bytes every join fails with
// [ErrTooLarge]. The default is none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.label = label })
}

// WithRecheck sets how long a waiter waits, give or take half, before it looks at
// the queue without having been told of a change. It bounds how long a lost event
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

// WithSlots says that permits of this queue are given numbers, with [Ticket.TakeSlot]. All who use the
// semaphore give it or none: others get a [*SizeError], until [Queue.Forget]. The default is no numbers.
func WithSlots() Option {
	return optionFunc(func(o *options) { o.numbered = true })
}

// JoinOption says more about a single ticket.
type JoinOption interface{ applyJoin(*joinOptions) }

type joinFunc func(*joinOptions)

func (f joinFunc) applyJoin(o *joinOptions) { f(o) }

type joinOptions struct {
	value  string
	number int64
}

// WithValue sets the value of a [Candidate] ticket, at most 1 MiB, which is the caller's affair. With
// more, the join fails with [ErrTooLarge]. Tickets of other modes have the owner's description there, and ignore it.
func WithValue(value string) JoinOption {
	return joinFunc(func(o *joinOptions) { o.value = value })
}

// WithPriority gives a [Candidate] ticket a priority, which becomes part of its key and
// which [Queue.Entries] tells. The queue itself goes by the order of arrival whatever the
// priorities. The default is 0; a negative one panics.
func WithPriority(priority int) JoinOption {
	if priority < 0 {
		panic("etcdlock: a negative priority")
	}
	return joinFunc(func(o *joinOptions) { o.number = int64(priority) })
}

func collectJoin(opts []JoinOption) joinOptions {
	if len(opts) == 0 {
		return joinOptions{} // without a place in the heap, which the other is given
	}
	var o joinOptions
	for _, opt := range opts {
		if opt == nil {
			panic("etcdlock: nil option")
		}
		opt.applyJoin(&o)
	}
	return o
}

// WithOtherPrograms says that other programs, with etcd's concurrency package for example, stand in the
// queue as well. They take every key below the prefix for a ticket, so nothing but tickets is
// written there. The default is that a key of the library's own may be: see Epochs in the package
// documentation.
func WithOtherPrograms() Option {
	return optionFunc(func(o *options) { o.shared = true })
}
