package proof_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	ttl        = 2 * time.Second
	poolSize   = 3
	stripes    = 3
	fencedData = "fenced/"
)

// life is one client of a worker, with its session and its locks, until it is closed.
type life struct {
	client   *clientv3.Client
	link     *embedtest.Link
	sessions *session.Keeper
	closed   atomic.Int64 // when, or 0

	pool, numbered *etcdlock.Semaphore
	striped        *etcdlock.Striped
	elections      []*etcdlock.Election // by priority
	local, kept    *etcdlock.Mutex      // whose state is in memory
	counts         *balance
	counted        etcdlock.Option // for every lock of this life
}

func newLife(client *clientv3.Client, link *embedtest.Link) *life {
	sessions := session.Keep(client, session.WithTTL(ttl))
	counts := &balance{}
	counted := etcdlock.WithHooks(counts.hooks())
	l := &life{
		client: client, link: link, sessions: sessions, counts: counts, counted: counted,
		pool:     etcdlock.NewSemaphore(sessions, "pool", poolSize, counted),
		numbered: etcdlock.NewSemaphore(sessions, "numbered", poolSize, etcdlock.WithSlots(), counted),
		striped:  etcdlock.NewStriped(sessions, "stock", stripes, counted),
		local: etcdlock.NewMutex(sessions, "local", counted,
			etcdlock.WithLocalHandover(100*time.Millisecond, 10), etcdlock.WithRetention(200*time.Millisecond)),
		kept: etcdlock.NewMutex(sessions, "kept", counted, etcdlock.WithRetention(500*time.Millisecond)),
	}
	for priority := range 3 {
		l.elections = append(l.elections, etcdlock.NewElection(sessions, "leader", etcdlock.WithPriority(priority), counted))
	}
	return l
}

// worker is a process: one client at a time, and goroutines that share it.
type worker struct {
	number  int
	life    atomic.Pointer[life]
	history *history
	calls   *calls
	witness *witness // nil: what happens in etcd is not looked at
	seed    uint64
}

func newWorker(number int, first *life, h *history, w *witness, seed uint64) *worker {
	one := &worker{number: number, history: h, witness: w, seed: seed, calls: &calls{now: h.now, active: map[*call]bool{}}}
	one.life.Store(first)
	return one
}

// work lets goroutines take locks of all kinds until ctx ends.
func (w *worker) work(ctx context.Context, goroutines int) {
	var working sync.WaitGroup
	if w.witness != nil {
		working.Go(func() { w.steady(ctx) })
	}
	for i := range goroutines {
		u := &user{worker: w, number: w.number*100 + i, random: rand.New(rand.NewPCG(w.seed, uint64(w.number*100+i)))}
		working.Go(func() {
			for ctx.Err() == nil {
				u.once(ctx)
			}
		})
	}
	working.Wait()
}

func (w *worker) moment() moment { return w.witness.moment(w.history.now()) }

// during runs a call that has to return, and says when it began and ended.
func (w *worker) during(ctx context.Context, l *life, what string, call func()) (began, done moment) {
	began = w.moment()
	one := w.calls.begin(ctx, what, began, &l.closed)
	defer w.calls.end(one)
	call()
	return began, w.moment()
}

// everything takes every lock once, as somebody has to be able to after a storm.
func (w *worker) everything(ctx context.Context) error {
	l := w.life.Load()
	var locks []etcdlock.Locker
	for _, name := range append(append([]string{}, plainNames...), wideNames...) {
		locks = append(locks, etcdlock.NewMutex(l.sessions, name, l.counted), etcdlock.NewRWMutex(l.sessions, name, l.counted).RLocker())
	}
	for i := range stripes {
		locks = append(locks, l.striped.Stripe(i))
	}
	locks = append(locks, l.pool, l.numbered, l.local, l.kept)
	for _, locker := range locks {
		err := persist(func() error {
			h, err := locker.Lock(ctx)
			if err != nil {
				return err
			}
			return h.Unlock(ctx)
		})
		if err != nil {
			return err
		}
	}
	return persist(func() error {
		term, err := l.elections[0].Campaign(ctx, "after the storm")
		if err != nil {
			return err
		}
		return term.Resign(ctx)
	})
}

// persist tries again after a loss: on a busy machine a session as short as these may not
// get its turn in time.
func persist(f func() error) error {
	for {
		if err := f(); !errors.Is(err, etcdlock.ErrLost) {
			return err
		}
	}
}
