package fairqueue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/etcdlock/locks/session"
)

const (
	defaultRecheck = 10 * time.Second
	longestRecheck = 24 * time.Hour // so that a few times as long is still a time

	// epochFolder is where the keys of sessions' epochs are. No escaped name has an exclamation mark.
	epochFolder = "!/epoch/"
)

// Queue is one line of tickets in etcd, named by its prefix. All Queue values with the same prefix are the same
// queue. It is safe for concurrent use.
type Queue struct {
	options Options
	source  session.Source
	space   space
	epochs  []string // folders of the keys of sessions' epochs
	owner   Owner    // of its tickets
}

// New returns the queue at prefix, which gets a slash appended; tickets are bound
// to sessions from source. No request is made. A nil source panics.
func New(source session.Source, prefix string, o Options) *Queue {
	if source == nil || source == (*session.Session)(nil) || source == (*session.Keeper)(nil) {
		panic("etcdlock: a queue needs a session source")
	}
	return &Queue{
		options: o, source: source, space: space(prefix + "/"),
		epochs: epochFolders(prefix, o.OtherPrograms), owner: thisProcess(o.Label),
	}
}

// in returns a queue that differs in where its tickets are.
func (q *Queue) in(s space) *Queue {
	in := *q
	in.space = s
	return &in
}

// epochFolders are the folders that a queue's epochs may be in, the best one first. One key beside
// the queue serves all queues there. A user that may use this queue only can write one below it,
// where other programs would take it for a ticket.
func epochFolders(prefix string, foreign bool) []string {
	beside := prefix[:strings.LastIndex(prefix, "/")+1] + epochFolder
	if foreign {
		return []string{beside}
	}
	return []string{beside, prefix + "/" + epochFolder}
}

// Options are those of [New]. The zero value is the default.
type Options struct {
	// Label is added to the owner information of the queue's tickets, for example what the lock is wanted for. With
	// one of more than 512 bytes every join fails with [ErrTooLarge].
	Label string

	// Recheck is how long a waiter waits without an event before it reads the queue again, at random from half of it
	// to one and a half. It limits how long a lost event can delay the waiter. The default is 10 s, for negative
	// values as well, and more than a day is a day. If there were more than 2,000 tickets when the waiter came, it
	// waits longer at first, up to six times as long, and each time half as long as before, until it is down to
	// Recheck.
	Recheck time.Duration

	// Slots gives every permit of the queue a number, see [Ticket.Slot]. All users of the semaphore set it, or none
	// does: others get a [*SizeError], until [Queue.Forget].
	Slots bool

	// OtherPrograms says that other programs, with etcd's concurrency package for example, use the queue as well.
	// They take every key below the prefix for a ticket, so only tickets are written there. Without this option the
	// library may write a key of its own there: see Epochs in the package documentation.
	OtherPrograms bool
}

func (o Options) recheck() time.Duration {
	if o.Recheck <= 0 {
		return defaultRecheck
	}
	return min(o.Recheck, longestRecheck)
}

// withSession runs attempt with a live session, and again with the next one if
// that turns out to be lost. A source that has no next one says so.
func withSession(ctx context.Context, source session.Source, attempt func(*session.Session) (*Ticket, error)) (*Ticket, error) {
	needContext(ctx)
	if source == nil {
		panic("etcdlock: a queue needs a session source, and is made with New")
	}
	for {
		s, err := source.Session(ctx)
		if err == nil {
			err = ctx.Err() // nothing has been sent, nothing is to be cleaned up
		}
		if err != nil {
			return nil, err
		}
		t, err := attempt(s)
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, session.ErrLost):
			return nil, err
		}
	}
}

func (q *Queue) checkLabel() error { return checkSize("a label", len(q.options.Label), longestLabel) }

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("etcdlock: nil context")
	}
}
