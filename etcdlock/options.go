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

// Option changes a default of a lock's constructor.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	namespace string
	raw       bool
	queue     []fairqueue.Option
	hooks     []*Hooks
	minHold   time.Duration

	kind     string // of lock, for which they are
	local    localOptions
	slots    bool
	priority int
	health   func(context.Context) error
	every    time.Duration
}

// WithNamespace sets what the names of locks are prefixed with in etcd: the queue of
// a name is at <namespace>/<escaped name>/. The default is "etcdlock". It is used as
// it is, may contain slashes, and must satisfy the rules for names.
func WithNamespace(namespace string) Option {
	return optionFunc(func(o *options) { o.namespace = namespace })
}

// AtPrefix takes the lock's name as the prefix of its queue in etcd, without namespace
// and escaping: the queue is at <name>/. With it a lock shares its queue with programs
// that use etcd's concurrency package, its lock service or "etcdctl lock" at that
// prefix: they and we exclude each other, in order. The default is a queue in the
// namespace; with AtPrefix, WithNamespace has no effect.
func AtPrefix() Option {
	return optionFunc(func(o *options) {
		o.raw = true
		o.queue = append(o.queue, fairqueue.WithOtherPrograms())
	})
}

// WithLabel adds a text to what is stored about the owner of the lock, next to host,
// process id, program and time, for people who look into the queue. With a label of more than
// 512 bytes, every attempt to take the lock fails with [ErrTooLarge]. The default is none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.queue = append(o.queue, fairqueue.WithLabel(label)) })
}

// WithMinHold makes a release take effect no earlier than d after the grant, even if the
// session is closed or the process ends in between. It is for jobs that must not run twice
// although clocks differ: the first to come does the job and is done long before the last one
// tries. If the holder crashes, the lock is free when its session's TTL is over, as
// always. The default is 0.
func WithMinHold(d time.Duration) Option {
	return optionFunc(func(o *options) {
		if o.kind == anElection {
			panic("etcdlock: WithMinHold is not for " + anElection)
		}
		o.minHold = d
	})
}

// WithSlots numbers the permits of a [Semaphore]: [Hold.Slot] then tells a number from 0 to
// size - 1 that no other holder has, for those who shard work by it. Only for permits of
// weight 1. All users of the semaphore give it, or none: others get a [*SizeError], until [Semaphore.Forget].
// It costs one read and one transaction more for each. The default is no numbers.
func WithSlots() Option {
	return special(aSemaphore, "WithSlots", func(o *options) {
		o.slots, o.queue = true, append(o.queue, fairqueue.WithSlots())
	})
}

// WithPriority makes a candidate of an [Election] preferred to those with a lower one when the
// leadership is vacant. It does not interrupt a term. Who comes up
// while a higher one waits passes the term on before Campaign returns; observers may see it for
// that moment. The default is 0; a negative one
// panics. Candidates of other programs know no priorities.
func WithPriority(priority int) Option {
	if priority < 0 {
		panic("etcdlock: a negative priority")
	}
	return special(anElection, "WithPriority", func(o *options) { o.priority = priority })
}

// WithHealthCheck makes [Election.Run] call check before each term and then every so often
// during it. If it returns an error, the term ends as if it had been lost, with [ErrUnhealthy]
// as the cause of the callback's context, and Run campaigns again only when check succeeds,
// asking every so often. Its context ends after the same time, or with the term; a check that
// has not returned by then counts as failed, and is not called again until it has. One that ends its
// goroutine, as t.FailNow does, has failed; a panic ends the process. The default is no check. It panics if every is not positive or check is nil.
func WithHealthCheck(every time.Duration, check func(context.Context) error) Option {
	if every <= 0 || check == nil {
		panic("etcdlock: a health check needs a function and a positive interval")
	}
	return special(anElection, "WithHealthCheck", func(o *options) { o.every, o.health = every, check })
}

// WithLocalHandover makes goroutines that share one Mutex value hand the lock on to each other in
// memory, in the order in which they came, without a write in etcd. They stand in etcd's queue
// together, with one ticket, and go back to its end, so that other processes have their turn, when
// the ticket has been owned for the time bound, or for that many grants, whichever comes first. If
// nobody else stands there then, which takes one read, they keep it for as long again.
// So others wait longer than they would otherwise by at most bound, and what the last holder still
// takes, for each such process ahead of them; and within that time, goroutines of the process that
// has the lock overtake those of others who came first. The order of processes stays that of
// etcd's queue.
//
// Before the lock goes to the next goroutine, Unlock asks etcd whether the ticket is still there: one read. The
// ticket may have been removed by hand, and another process may have the lock. There is no read for an
// Unlock within 50 µs of the last hand-over, but one every 5 ms. So the limit is this: while goroutines hand
// the lock on without a pause, a Lock may still be granted up to 5 ms after the ticket was removed. If etcd
// does not answer within 250 ms, the ticket is given back, and the goroutines wait in etcd's queue again.
//
// All who have the lock under one ticket have the same [Token]: it fences processes, not
// goroutines of one process. If the session is lost, or the ticket with which they stand in
// etcd's line, those who wait in memory get [ErrLost]; if the key of the one who has the lock is
// removed, they stand in line again. Only for a [Mutex]; not together with [WithMinHold]. The default is that every Lock has a
// ticket. It panics if bound or grants is not positive.
func WithLocalHandover(bound time.Duration, grants int) Option {
	if bound <= 0 || grants <= 0 {
		panic("etcdlock: the bounds of a local hand-over must be positive")
	}
	return special(aMutex, "WithLocalHandover", func(o *options) { o.local.bound, o.local.grants = bound, grants })
}

// WithRetention makes the lock stay with the Mutex value when it has been unlocked, until somebody
// else wants it, or for the time idle at most: then locking and unlocking it again costs one read each, and
// no write. Unlock reads whether somebody else is in line already; if so it gives the lock back, which makes it
// two round trips. Lock reads whether the lock is still there; if it was removed by hand, Lock waits in
// line as any other. From the first Unlock on a watch on the queue tells of others, and another process has the lock
// within one hand-over more than otherwise. There is no read within 50 µs of the last Unlock or Lock, but one
// every 5 ms, as with WithLocalHandover. While the process does not answer, others wait until its TTL is
// over, as if it had crashed with the lock, although nobody uses it.
//
// Somebody else is one who stands in line. A TryLock of another Mutex does not, so it gets [ErrBusy] for
// as long as the lock is kept, and does not end that.
//
// All who have the lock without it being given back in between have the same [Token].
// Only for a [Mutex]; not together with [WithMinHold]. The default is that Unlock gives the
// lock back. It panics if idle is not positive.
func WithRetention(idle time.Duration) Option {
	if idle <= 0 {
		panic("etcdlock: the time for which a lock is kept must be positive")
	}
	return special(aMutex, "WithRetention", func(o *options) { o.local.idle = idle })
}

// special is an option that only one kind of lock heeds. Others panic; an inspection takes those of all.
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
