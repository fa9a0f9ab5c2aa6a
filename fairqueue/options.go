package fairqueue

import "time"

const (
	defaultRecheck = 10 * time.Second
	longestRecheck = 24 * time.Hour // so that a few times as long is still a time
)

// Options are what [NewWith] can change. The zero value is the default.
type Options struct {
	// Label is added to the owner information of the queue's tickets, for example what the lock is wanted for. With
	// one of more than 512 bytes every join fails with [ErrTooLarge].
	Label string

	// Recheck is how long a waiter waits, give or take half, before it looks at the queue without an event. It
	// bounds how long a lost event can delay it. The default is 10 s, for negative values as well, and more than a
	// day is a day. If there were more than 2,000 tickets when the waiter came, it waits longer at first, up to six
	// times as long, and each time half as long as before, until it is down to Recheck.
	Recheck time.Duration

	// Slots gives every permit of the queue a number, see [Ticket.Slot]. All users of the semaphore set it, or none
	// does: others get a [*SizeError], until [Queue.Forget].
	Slots bool

	// OtherPrograms says that other programs, with etcd's concurrency package for example, use the queue as well.
	// They take every key below the prefix for a ticket, so nothing but tickets is written there. Otherwise a key of
	// the library's own may be: see Epochs in the package documentation.
	OtherPrograms bool
}

func (o Options) recheck() time.Duration {
	if o.Recheck <= 0 {
		return defaultRecheck
	}
	return min(o.Recheck, longestRecheck)
}
