package etcdlock

import (
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/etcdlock/locks/fairqueue"
)

const (
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
	return optionFunc(func(o *options) { o.raw = true })
}

// WithLabel adds a text to what is stored about the owner of the lock, next to host,
// process id, program and time, for people who look into the queue. The default is
// none.
func WithLabel(label string) Option {
	return optionFunc(func(o *options) { o.queue = append(o.queue, fairqueue.WithLabel(label)) })
}

func collect(opts []Option) options {
	o := options{namespace: defaultNamespace}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return o
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
		return "", fmt.Errorf("namespace %q: %w", o.namespace, err)
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
