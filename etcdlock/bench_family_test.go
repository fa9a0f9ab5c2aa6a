package etcdlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ours makes an implementation of any lock of this package.
func ours(name string, lock func(s *session.Session, name string) etcdlock.Locker) implementation {
	return implementation{name, func(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
		s, err := session.New(ctx, c, session.WithTTL(benchTTL))
		if err != nil {
			return contender{}, err
		}
		l := lock(s, name)
		return contender{
			lock: func(ctx context.Context) (func(context.Context) error, error) {
				h, err := l.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return h.Unlock, nil
			},
			close: s.Close,
		}, nil
	}}
}

// theirReadLock is the reader's side of the read-write lock among etcd's recipes.
var theirReadLock = implementation{"etcd", func(_ context.Context, c *clientv3.Client, name string) (contender, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(benchTTL.Seconds())))
	if err != nil {
		return contender{}, err
	}
	return contender{
		lock: func(context.Context) (func(context.Context) error, error) {
			m := recipe.NewRWMutex(s, "recipe/"+name)
			if err := m.RLock(); err != nil {
				return nil, err
			}
			return func(context.Context) error { return m.RUnlock() }, nil
		},
		close: func(context.Context) error { return s.Close() },
	}, nil
}}

// inSlices has every contender lock and unlock as often as it can for half a second, and
// reports how many pairs there were, and how long one took.
func inSlices(b *testing.B) func(all []contender) map[string]float64 {
	return func(all []contender) map[string]float64 {
		var mu sync.Mutex
		var took []float64
		start := time.Now()
		run(b, all, func(c contender) error {
			var mine []float64
			for time.Since(start) < 500*time.Millisecond {
				began := time.Now()
				unlock, err := c.lock(b.Context())
				if err != nil {
					return err
				}
				if err := unlock(b.Context()); err != nil {
					return err
				}
				mine = append(mine, microseconds(time.Since(began)))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			return nil
		})
		return map[string]float64{
			"pairs/s": float64(len(took)) / time.Since(start).Seconds(),
			"p50-µs":  percentile(took, 50),
		}
	}
}

var oneNode = []deployment{{1, true}, {1, false}}

// BenchmarkReadLock has readers take and give back one lock, each as often as it can.
func BenchmarkReadLock(b *testing.B) {
	read := ours("ours", func(s *session.Session, name string) etcdlock.Locker {
		return etcdlock.NewRWMutex(s, name).RLocker()
	})
	for _, readers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) {
				match(b, cluster, []implementation{theirReadLock, read}, readers, inSlices(b))
			})
		})
	}
}

// BenchmarkSemaphore has 8 sessions take and give back permits, compared with a Mutex in the
// same run: of one permit, which is as much as a Mutex, and of four.
func BenchmarkSemaphore(b *testing.B) {
	semaphore := func(size int64, opts ...etcdlock.Option) func(s *session.Session, name string) etcdlock.Locker {
		return func(s *session.Session, name string) etcdlock.Locker {
			return etcdlock.NewSemaphore(s, fmt.Sprint(name, size, len(opts)), size, opts...)
		}
	}
	onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) {
		match(b, cluster, []implementation{
			ours("mutex", func(s *session.Session, name string) etcdlock.Locker { return etcdlock.NewMutex(s, name) }),
			ours("one", semaphore(1)),
			ours("four", semaphore(4)),
			ours("slots", semaphore(4, etcdlock.WithSlots())),
		}, 8, inSlices(b))
	})
}

// oneByOne takes its locks in order, one after the other.
type oneByOne []etcdlock.Locker

func (l oneByOne) lock(ctx context.Context) (func(context.Context) error, error) {
	var holds []*etcdlock.Hold
	unlock := func(ctx context.Context) (err error) {
		for _, h := range holds {
			if e := h.Unlock(ctx); e != nil {
				err = e
			}
		}
		return err
	}
	for _, part := range l {
		h, err := part.Lock(ctx)
		if err != nil {
			_ = unlock(ctx)
			return nil, err
		}
		holds = append(holds, h)
	}
	return unlock, nil
}

// BenchmarkMulti takes several free names at once, and one by one.
func BenchmarkMulti(b *testing.B) {
	for _, names := range []int{1, 4, 16} {
		parts := func(s *session.Session, name string) (all []*etcdlock.Mutex) {
			for i := range names {
				all = append(all, etcdlock.NewMutex(s, fmt.Sprint(name, i)))
			}
			return all
		}
		singly := implementation{"singly", func(ctx context.Context, c *clientv3.Client, name string) (contender, error) {
			s, err := session.New(ctx, c, session.WithTTL(benchTTL))
			if err != nil {
				return contender{}, err
			}
			var l oneByOne
			for _, m := range parts(s, name) {
				l = append(l, m)
			}
			return contender{lock: l.lock, close: s.Close}, nil
		}}
		multi := ours("multi", func(s *session.Session, name string) etcdlock.Locker {
			var all []etcdlock.Lockable
			for _, m := range parts(s, name) {
				all = append(all, m)
			}
			return etcdlock.NewMulti(s, all...)
		})
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			onEach(b, oneNode, func(b *testing.B, cluster *embedtest.Cluster) {
				match(b, cluster, []implementation{singly, multi}, 1, func(all []contender) map[string]float64 {
					start := time.Now()
					pair(b, all[0])
					return map[string]float64{"µs": microseconds(time.Since(start))}
				})
			})
		})
	}
}
