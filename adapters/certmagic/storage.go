package certmagiclock

import (
	"strings"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Option changes a default of [NewStorage].
type Option func(*settings)

type settings struct {
	onLost  func(name string, err error)
	options []etcdlock.Option
}

// WithOnLost calls f when a lock is lost while certmagic works under it. The work goes on. f may be called at the same time
// for several names. By default a loss is not reported.
func WithOnLost(f func(name string, err error)) Option {
	return func(s *settings) { s.onLost = f }
}

// WithLockOptions passes options to the locks: hooks, a logger, a namespace.
func WithLockOptions(opts ...etcdlock.Option) Option {
	return func(s *settings) { s.options = append(s.options, opts...) }
}

// NewStorage returns a storage in etcd. Its values are at the keys below prefix and a slash, its locks have names that
// begin with prefix and a slash. Storages with the same client's etcd, prefix and lock options are one. src is usually a
// session.Keeper; close it after certmagic's work has ended. No request is made.
//
// A value may have up to 1 MiB; Store returns an error that wraps [etcdlock.ErrTooLarge] for a larger one. Store and
// Delete cost two round trips, Load, Exists and Stat one, and List one for each 1,000 keys. The storage is safe for
// concurrent use.
func NewStorage(client *clientv3.Client, src session.Source, prefix string, opts ...Option) certmagic.Storage {
	if client == nil {
		panic("certmagiclock: NewStorage needs a client")
	}
	s := settings{onLost: func(string, error) {}}
	for _, o := range opts {
		o(&s)
	}
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	return &locked{
		Storage: &values{client: client, prefix: prefix},
		locks:   etcdlock.NewNamed(src, s.onLost, s.options...),
		prefix:  prefix,
	}
}
