package coord

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/etcdlock/locks/etcdlock"
)

const (
	defaultNamespace = "etcdlock"
	defaultSettle    = time.Second

	largestWeight = 1000

	longestName   = 512
	longestFolder = 480 // so that what is added to it stays a valid namespace of etcdlock

	aGroup   = "a Group"
	shards   = "Shards"
	aOnce    = "a Once"
	aLatch   = "a Latch"
	aBarrier = "a Barrier"
)

// Option changes a default of a constructor. A nil option, and one for another type than the constructor's, panic.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	kind      string
	namespace string
	weight    int
	settle    time.Duration
	expiry    time.Duration
}

// WithNamespace sets the prefix of names in etcd, as [etcdlock.WithNamespace] does. The default is "etcdlock". One that
// leads below another name's "!/" is invalid.
func WithNamespace(namespace string) Option {
	return optionFunc(func(o *options) { o.namespace = namespace })
}

// WithWeight sets the share of a member of [Shards]: with weight 2 it owns twice as many shards as with weight 1. The default
// is 1. It panics if weight is not positive, or more than 1000.
func WithWeight(weight int) Option {
	if weight < 1 || weight > largestWeight {
		panic(fmt.Sprintf("coord: the weight %d is not between 1 and %d", weight, largestWeight))
	}
	return special(shards, "WithWeight", func(o *options) { o.weight = weight })
}

// WithSettle sets how long a member of [Shards] waits after members have come or gone, before it assigns shards anew. A
// member that goes and comes back within that time moves no shard, and several changes count as one. A shard whose owner has
// gone is without an owner for that long. Give all members the same. The default is 1 s. It panics if settle is negative.
func WithSettle(settle time.Duration) Option {
	if settle < 0 {
		panic("coord: a negative settle time")
	}
	return special(shards, "WithSettle", func(o *options) { o.settle = settle })
}

// WithExpiry removes the mark of a [Once] after that time, counted by etcd, so that the next [Once.Do] calls its function
// again. It is rounded up to whole seconds, and never less than etcd's shortest lease, about 2 s. After an election in the
// cluster the mark stays longer. It panics if expiry is not positive. Without it a mark stays until [Once.Reset].
func WithExpiry(expiry time.Duration) Option {
	if expiry <= 0 {
		panic("coord: an expiry that is not positive")
	}
	return special(aOnce, "WithExpiry", func(o *options) { o.expiry = expiry })
}

// special is an option for one kind.
func special(kind, name string, apply func(*options)) Option {
	return optionFunc(func(o *options) {
		if o.kind != kind {
			panic("coord: " + name + " is not for " + o.kind)
		}
		apply(o)
	})
}

func collect(kind string, opts []Option) options {
	o := options{kind: kind, namespace: defaultNamespace, weight: 1, settle: defaultSettle}
	for _, opt := range opts {
		if opt == nil {
			panic("coord: nil option")
		}
		opt.apply(&o)
	}
	return o
}

// folder is where the state of name is in etcd, without a slash at its end. No name of a lock leads there.
func (o *options) folder(name string) (string, error) {
	if err := valid("name", name); err != nil {
		return "", err
	}
	if err := valid("namespace", o.namespace); err != nil {
		return "", err
	}
	if strings.Contains(o.namespace+"/", "!/") {
		return "", fmt.Errorf("%w: the namespace %q leads below another name", etcdlock.ErrInvalidName, brief(o.namespace))
	}
	folder := o.namespace + "/" + url.PathEscape(name) + "!"
	if len(folder) > longestFolder {
		return "", fmt.Errorf("%w: escaped and with its namespace it has %d bytes, at most %d are allowed",
			etcdlock.ErrInvalidName, len(folder), longestFolder)
	}
	return folder, nil
}

func valid(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: an empty %s", etcdlock.ErrInvalidName, what)
	case len(text) > longestName:
		return fmt.Errorf("%w: a %s of %d bytes, at most %d are allowed", etcdlock.ErrInvalidName, what, len(text), longestName)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: a %s that is not UTF-8", etcdlock.ErrInvalidName, what)
	}
	return nil
}
