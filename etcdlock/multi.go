package etcdlock

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Lockable is what can be part of a [Multi]: a [Mutex], a [RWMutex] (its exclusive side) or
// a [ReadLock].
type Lockable interface {
	part() *single
}

// Multi is several locks that are taken and released as one, in a single transaction. A Multi that
// comes first is ahead in every queue, so no two of them can wait for each other, in whatever order
// they name the locks. A hold has one token, which is higher than every earlier token of each of the
// locks; the loss of one key is the loss of the hold. It is safe for concurrent use.
type Multi struct {
	lock
	places []fairqueue.Place
}

var _ Locker = (*Multi)(nil)

// NewMulti returns the lock that consists of the given ones. A lock that is given twice is taken once,
// exclusively if either is. Holds are bound to one session from src. Labels are those of the parts;
// other options are given to With. Without any lock, and with a nil src, it panics.
func NewMulti(src session.Source, locks ...Lockable) *Multi {
	need(src, "a Multi needs a session source")
	if len(locks) == 0 {
		panic("etcdlock: a Multi of no locks")
	}
	m := &Multi{lock: lock{kind: kindMulti, source: src, opts: collect("a Multi", nil)}}
	var names []string
	for _, l := range locks {
		need(l, "a Multi of a nil lock")
		part := l.part()
		part.needMade()
		m.err = cmp.Or(m.err, part.err)
		c := part.covers[0]
		i := slices.IndexFunc(m.covers, func(other cover) bool { return other.prefix == c.prefix })
		switch {
		case i < 0:
			names = append(names, part.name)
			m.covers = append(m.covers, c)
			m.places = append(m.places, part.place())
		case !c.shared:
			m.covers[i], m.places[i] = c, part.place()
		}
	}
	m.name = strings.Join(names, "+")
	return m
}

// With returns the same lock with further options: [WithHooks], [WithLogger], [WithMinHold].
// [WithNamespace], [AtPrefix] and [WithLabel] are for its parts and have no effect; options of other
// kinds of lock panic.
func (m *Multi) With(opts ...Option) *Multi {
	with := *m
	with.opts.hooks, with.opts.queue = slices.Clip(m.opts.hooks), fairqueue.Options{} // not to write into another With's
	with.opts.add(opts)
	return &with
}

// Lock waits until it has all the locks. If all are free, that is one round trip and one raft entry,
// and a read more for more than 64 locks (42 readers: up to five). If not, there is one read more at
// the end. Errors are as for [Mutex.Lock], and a [*TooManyError] for more than 127 locks, or more than
// this etcd allows. For [ErrUpgrade] the source that counts is that given to NewMulti.
func (m *Multi) Lock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "lock", func(ctx context.Context) (*fairqueue.Ticket, error) {
		return fairqueue.JoinN(ctx, m.source, len(m.places), m.places...)
	})
}

// TryLock takes the locks only if all are free: one read and one transaction. Otherwise the error is
// [ErrBusy], after the read.
func (m *Multi) TryLock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "trylock", func(ctx context.Context) (*fairqueue.Ticket, error) {
		return fairqueue.TryN(ctx, m.source, len(m.places), m.places...)
	})
}
