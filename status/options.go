package status

import (
	"cmp"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Option changes a default of [New].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	namespace string // empty: none was given
	raw       bool
	title     string
	slow      time.Duration

	linger     time.Duration // how long locks are followed after the last viewer has left
	writeLimit time.Duration // how long a viewer may take none of an event before its stream ends
}

// WithNamespace shows the locks of a namespace, see [etcdlock.WithNamespace]. The default is "etcdlock".
func WithNamespace(namespace string) Option {
	return optionFunc(func(o *options) { o.namespace = namespace })
}

// AtPrefix shows queues at raw prefixes, see [etcdlock.AtPrefix]: those below the prefix that [WithNamespace] gives, and
// without one those of all of etcd, where any key that has a slash counts as a place in a line. The values of such keys
// are visible to every viewer.
func AtPrefix() Option {
	return optionFunc(func(o *options) { o.raw = true })
}

// WithTitle sets the title of the page, such as the name of the cluster. The default is "Locks".
func WithTitle(title string) Option {
	return optionFunc(func(o *options) { o.title = title })
}

// WithSlowAfter sets how long the first waiter of a lock may wait before the lock is shown as slow, and with ten times
// that as stuck. The default is a minute. It panics if d is not positive.
func WithSlowAfter(d time.Duration) Option {
	if d <= 0 {
		panic("status: WithSlowAfter needs a positive duration")
	}
	return optionFunc(func(o *options) { o.slow = d })
}

func collect(opts []Option) options {
	o := options{title: "Locks", slow: time.Minute, linger: 30 * time.Second, writeLimit: 20 * time.Second}
	for _, opt := range opts {
		if opt == nil {
			panic("status: a nil option")
		}
		opt.apply(&o)
	}
	return o
}

// locks are the options of what lists all locks.
func (o *options) locks() []etcdlock.Option {
	switch {
	case o.raw && o.namespace == "":
		return []etcdlock.Option{etcdlock.AtPrefix()}
	case o.raw:
		return []etcdlock.Option{etcdlock.AtPrefix(), etcdlock.WithNamespace(o.namespace)}
	}
	return []etcdlock.Option{etcdlock.WithNamespace(o.root())}
}

// root is what all keys begin with, without a slash at its end; empty for all of etcd.
func (o *options) root() string {
	if o.raw {
		return o.namespace
	}
	return cmp.Or(o.namespace, "etcdlock")
}

// where names what the locks are in.
func (o *options) where() string {
	switch {
	case o.root() == "":
		return "all of etcd"
	case o.raw:
		return "prefix " + o.root()
	}
	return "namespace " + o.root()
}
