// Cache shows how a cache next to a database keeps an old price for good, and two locks that prevent it.
//
//	go run ./examples/cache
//
// A reader that does not find a price in the cache reads it from the database and puts it there. A
// writer changes the price in the database and empties the cache. If the writer comes between the reading
// and the putting, the old price gets into the cache after it has been emptied. The program shows that,
// and how a lock prevents it. Then it measures several processes that read, and one that
// changes all prices: without a lock, with a Mutex, and with a RWMutex. Processes that fill the cache
// take the RWMutex as readers, since they need not keep out each other.
//
// The part to copy into a service is in prices.go. show.go is the first part of the story, and
// measure.go the second. The program exits with 0 only if the cache was outdated without a lock, and
// never with one.
package main

import (
	"context"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

var program = stage.Program{
	Name:  "cache",
	Story: story,
	Roles: map[string]stage.Act{"reader": reader},
}

func main() { program.Main() }

// way is one way to keep the cache.
type way struct {
	name   string
	locked bool
	get    func(*Prices, context.Context, string) (int, error)
	set    func(*Prices, context.Context, map[string]int) error
	locks  func(*session.Keeper, ...etcdlock.Option) (fill, change etcdlock.Locker)
}

var ways = []way{
	{"no lock", false, (*Prices).GetUnlocked, (*Prices).SetUnlocked,
		func(*session.Keeper, ...etcdlock.Option) (fill, change etcdlock.Locker) { return nil, nil }},
	{"Mutex", true, (*Prices).Get, (*Prices).Set,
		func(sessions *session.Keeper, options ...etcdlock.Option) (fill, change etcdlock.Locker) {
			mutex := etcdlock.NewMutex(sessions, "prices", options...)
			return mutex, mutex
		}},
	{"RWMutex", true, (*Prices).Get, (*Prices).Set,
		func(sessions *session.Keeper, options ...etcdlock.Option) (fill, change etcdlock.Locker) {
			mutex := etcdlock.NewRWMutex(sessions, "prices", options...)
			return mutex.RLocker(), mutex
		}},
}

// open returns the prices of one way, independent of those of the others.
func (w way) open(e *stage.Etcd, sessions *session.Keeper, part string, options ...etcdlock.Option) *Prices {
	p := &Prices{client: e.Client, prefix: e.Prefix + part + "/" + w.name + "/"}
	p.fill, p.change = w.locks(sessions, append(options, etcdlock.WithNamespace(p.prefix+"locks"))...)
	return p
}

func story(ctx context.Context, e *stage.Etcd) error {
	sessions := session.Keep(e.Client)
	defer sessions.Close(ctx)
	for i, w := range ways {
		e.Printf("%d. One reads a price while another changes it: %s\n", i+1, w.name)
		if err := show(ctx, e, w, sessions); err != nil {
			return err
		}
	}
	if err := measure(ctx, e, sessions); err != nil {
		return err
	}
	e.Printf(`
Without a lock an old price stays in the cache until the next change, and in a quiet night that is the morning.
A price that is in the cache is read without a lock in all three ways. The lock is for processes that fill the cache, and
for the one that changes prices. With a RWMutex they fill it side by side, and may ask the database twice for the same.
`)
	return nil
}
