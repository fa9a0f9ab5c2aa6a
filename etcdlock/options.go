package etcdlock

import (
	"context"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/etcdlock/locks/fairqueue"
)

const (
	aMutex     = "a Mutex"
	anElection = "an Election"
	aSemaphore = "a Semaphore"

	anInspection = "an inspection"

	defaultNamespace = "etcdlock"
	longestName      = 512
)

// Option changes a default of a lock's constructor. An option for another kind of lock panics.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	namespace  string
	namespaced bool // namespace was given
	raw        bool
	queue      fairqueue.Options
	hooks      []*Hooks
	minHold    time.Duration

	kind     string // of lock
	local    localOptions
	priority int
	health   func(context.Context) error
	every    time.Duration
	recheck  time.Duration // of FollowAll; 0 is the default
}

// WithNamespace sets the prefix of the names of locks in etcd: the queue of a name is at
// <namespace>/<escaped name>/. The default is "etcdlock". The namespace is used as it is, may contain
// slashes, and must satisfy the rules for names.
func WithNamespace(namespace string) Option {
	return optionFunc(func(o *options) { o.namespace, o.namespaced = namespace, true })
}

// AtPrefix puts the queue at <name>/ in etcd, without namespace and escaping. A lock at a prefix
// excludes programs that use etcd's concurrency package, its lock service or "etcdctl lock" at that
// prefix, and waits in line with them. With it, WithNamespace has no effect.
func AtPrefix() Option {
	return optionFunc(func(o *options) {
		o.raw = true
		o.queue.OtherPrograms = true
	})
}

// WithLabel adds a text to what etcd stores about the owner of the lock: host, process id, program
// and time. [Inspect] and [BlockedError] show it. With a label of more than 512 bytes, every attempt
// to take the lock fails with [ErrTooLarge]. The default is none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.queue.Label = label })
}

// WithMinHold keeps the lock taken for at least d after the grant, even if it is unlocked before. It stays taken if
// the session is closed or the process ends after the Unlock. It is for jobs that must not run twice although clocks
// differ: the first process does the job and is done long before the last one tries. If the holder crashes before
// Unlock, the lock is free after its session's TTL. The default is 0.
func WithMinHold(d time.Duration) Option {
	return optionFunc(func(o *options) {
		if o.kind == anElection {
			panic("etcdlock: WithMinHold is not for " + anElection)
		}
		o.minHold = d
	})
}

// WithSlots numbers the permits of a [Semaphore]: [Hold.Slot] returns a number from 0 to size - 1
// that no other holder has. It is for permits of weight 1. All users of the semaphore must give it,
// or none: others get a [*SizeError], until [Semaphore.Forget]. A permit costs one read and one
// transaction more. The default is no numbers.
func WithSlots() Option {
	return special(aSemaphore, "WithSlots", func(o *options) {
		o.queue.Slots = true
	})
}

// WithPriority makes a candidate of an [Election] preferred to candidates of lower priority when
// the leadership is vacant. It does not interrupt a term. A candidate that is granted the term while
// a higher priority waits passes it on before Campaign returns; observers may see it for a moment.
// The default is 0; a negative priority panics. Candidates of other programs have none.
func WithPriority(priority int) Option {
	if priority < 0 {
		panic("etcdlock: a negative priority")
	}
	return special(anElection, "WithPriority", func(o *options) { o.priority = priority })
}

// WithHealthCheck makes [Election.Run] call check before each term, and every so often during it.
// If check returns an error, the term ends with [ErrUnhealthy] as the cause of the callback's
// context, and Run campaigns again only when check succeeds. check's context ends after the same
// time, or with the term. A check that has not returned by then has failed, and is not called again
// before it returns; so has one that ends its goroutine. The default is no check. It panics if every
// is not positive or check is nil.
func WithHealthCheck(every time.Duration, check func(context.Context) error) Option {
	if every <= 0 || check == nil {
		panic("etcdlock: a health check needs a function and a positive interval")
	}
	return special(anElection, "WithHealthCheck", func(o *options) { o.every, o.health = every, check })
}

// WithLocalHandover lets goroutines that share one Mutex value hand the lock on in memory, in the order in which they
// called Lock. One of them at a time is in etcd's queue. When the process has had the lock for the time bound, or for
// that many grants, it releases the lock, and the next goroutine joins the end of the queue. If no other process
// waits, the process keeps it for as long again. So another process waits longer by up to bound for each such process
// ahead of it.
//
// Holds under one ticket have the same [Token]: it fences processes, not their goroutines.
//
// Unlock reads whether the ticket is still there before it hands the lock on, at most once in 5 ms while the lock is
// handed on without pauses of 50 µs. Lock reads it, too, if it takes the lock after such a pause and no read has
// begun since its call. So a Lock may be granted up to 5 ms after the ticket was removed by hand. If etcd does not
// answer within 250 ms, the lock is released.
//
// It is for a [Mutex], and not together with [WithMinHold]. The default is a ticket for each Lock. It
// panics if bound or grants is not positive.
func WithLocalHandover(bound time.Duration, grants int) Option {
	if bound <= 0 || grants <= 0 {
		panic("etcdlock: the bounds of a local hand-over must be positive")
	}
	return special(aMutex, "WithLocalHandover", func(o *options) { o.local.bound, o.local.grants = bound, grants })
}

// WithRetention keeps the lock with the Mutex value after Unlock, until another process waits for
// it, or for the time idle at most. Locking it again then costs one read, and no write. Goroutines that wait get
// it in memory, as with [WithLocalHandover], with a read each, as long as no other process waits. There is at most
// one read in 5 ms without pauses, and a Lock may be granted up to 5 ms after a removal by hand.
//
// While the lock is kept, a watch reports other waiters, which get it one hand-over later than otherwise. A TryLock
// of another process does not wait, and gets [ErrBusy]. If the process does not answer, they wait until its TTL is
// over, although the lock is not in use. All holds until the lock is released in etcd have the same [Token].
//
// It is for a [Mutex], and not together with [WithMinHold]. By default Unlock releases the lock in etcd. It panics if
// idle is not positive.
func WithRetention(idle time.Duration) Option {
	if idle <= 0 {
		panic("etcdlock: the time for which a lock is kept must be positive")
	}
	return special(aMutex, "WithRetention", func(o *options) { o.local.idle = idle })
}

// special is an option for one kind of lock. With others it panics; an inspection takes all options.
func special(kind, name string, apply func(*options)) Option {
	return optionFunc(func(o *options) {
		if o.kind != kind && o.kind != anInspection {
			panic("etcdlock: " + name + " is not for " + o.kind)
		}
		apply(o)
	})
}

func collect(kind string, opts []Option) options {
	o := options{kind: kind, namespace: defaultNamespace}
	o.add(opts)
	return o
}

func (o *options) add(opts []Option) {
	for _, opt := range opts {
		need(opt, "nil option")
		opt.apply(o)
	}
}

// prefix is where the queue of name is in etcd.
func (o *options) prefix(name string) (string, error) {
	if err := valid(name); err != nil {
		return "", err
	}
	if o.raw {
		return name, nil
	}
	if err := valid(o.namespace); err != nil {
		return "", fmt.Errorf("namespace %q: %w", brief(o.namespace), err)
	}
	return o.namespace + "/" + url.PathEscape(name), nil
}

func valid(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty", ErrInvalidName)
	case len(name) > longestName:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalidName, len(name), longestName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: not UTF-8", ErrInvalidName)
	}
	return nil
}
