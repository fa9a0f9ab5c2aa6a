package proof_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

const (
	crowdTTL = 3 * time.Second

	// callLimit bounds a call of a process, and is far more than it takes if nothing is wrong.
	callLimit = 10 * time.Second
)

// crowd is some processes that call Group, Once, Latch or Barrier. A process that crashes is replaced.
type crowd struct {
	*scene
	behave func(p *caller) // what each process does; it returns when that is done, or the process crashes

	present []*caller
	running sync.WaitGroup
	good    atomic.Int64 // calls that did what they are for
}

// age is that of the cluster: it is another one when the cluster has gone back. It is odd until all have noticed.
type age struct{ atomic.Int64 }

// steady reports whether the age has been the same since it was began, and all have noticed.
func (a *age) steady(began int64) bool { return began%2 == 0 && a.Load() == began }

// caller is a process of a crowd.
type caller struct {
	number   int
	ctx      context.Context // ends with a crash
	crash    context.CancelFunc
	client   *clientv3.Client
	link     *embedtest.Link // may be nil
	sessions *session.Keeper
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	s := newScene(t, seed)
	c := crowdIn(s)
	s.link = func() *embedtest.Link { return pick(s, c.present).link }
	return c
}

// crowdIn returns a crowd whose processes end with the test, if that has failed.
func crowdIn(s *scene) *crowd {
	c := &crowd{scene: s}
	s.t.Cleanup(func() {
		if !s.t.Failed() {
			return
		}
		for _, p := range c.present {
			p.crash()
		}
		c.await()
	})
	return c
}

// await waits until all processes have returned, and reports whether they have.
func (c *crowd) await() bool {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		c.running.Wait()
	}()
	select {
	case <-returned:
		return true
	case <-time.After(patience):
		return false
	}
}

// come adds a process.
func (c *crowd) come(number int) {
	client, link, closeAll := c.connect()
	ctx, crash := context.WithCancel(context.Background())
	p := &caller{number, ctx, crash, client, link, session.Keep(client, session.WithTTL(crowdTTL))}
	c.present = append(c.present, p)
	c.running.Go(func() {
		c.behave(p)
		closing, done := context.WithTimeout(context.Background(), 2*crowdTTL)
		defer done()
		_ = p.sessions.Close(closing)
		closeAll()
	})
}

func (c *crowd) fill() {
	processes := 3
	if c.long {
		processes = 5
	}
	for number := range processes {
		c.come(number)
	}
}

// storm makes trouble, and ends with healthy links, when calls succeed again.
func (c *crowd) storm() {
	c.fill()
	c.scene.storm(trouble{"crash", func(*scene) func() {
		c.replace(c.random.IntN(len(c.present)))
		return func() {}
	}}, trouble{"no crash", func(*scene) func() { return func() {} }})
	for _, p := range c.present {
		if p.link != nil {
			p.link.Heal()
		}
	}
	enough := c.good.Load() + 5
	require.Eventually(c.t, func() bool { return c.good.Load() >= enough }, patience, 10*time.Millisecond, "calls do not succeed after a storm")
}

// replace lets a process vanish, as etcd sees it, and another one come in its place.
func (c *crowd) replace(i int) {
	p := c.present[i]
	if p.link != nil {
		p.link.Blackhole()
	} else {
		closeClient(p.client)
	}
	p.crash()
	c.present = slices.Delete(c.present, i, i+1)
	c.come(p.number)
}

// finish waits until all processes have returned, and returns the history.
func (c *crowd) finish() []embedtest.Change {
	c.t.Helper()
	require.True(c.t, c.await(), "a call does not return")
	for _, p := range c.present {
		p.crash()
	}
	return c.history()
}
