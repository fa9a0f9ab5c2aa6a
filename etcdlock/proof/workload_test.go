package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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

var plainNames = []string{"a", "b", "c"}

// worker is a client with a session and a network of its own.
type worker struct {
	number   int
	client   *clientv3.Client
	link     *embedtest.Link
	sessions *session.Keeper
	history  *history
	random   *rand.Rand

	pool     *etcdlock.Semaphore
	striped  *etcdlock.Striped
	election *etcdlock.Election
	local    *etcdlock.Mutex // may be shared with another worker, as if of one process
}

func newWorker(number int, client *clientv3.Client, link *embedtest.Link, h *history, seed uint64) *worker {
	sessions := session.Keep(client, session.WithTTL(ttl))
	return &worker{
		number: number, client: client, link: link, sessions: sessions, history: h,
		random:   rand.New(rand.NewPCG(seed, uint64(number))),
		pool:     etcdlock.NewSemaphore(sessions, "pool", poolSize),
		striped:  etcdlock.NewStriped(sessions, "stock", stripes),
		election: etcdlock.NewElection(sessions, "leader"),
		local: etcdlock.NewMutex(sessions, "local",
			etcdlock.WithLocalHandover(100*time.Millisecond, 10), etcdlock.WithRetention(200*time.Millisecond)),
	}
}

// work takes locks of all kinds until ctx ends. Errors are expected: what counts is what
// is believed.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		w.once(ctx)
	}
}

// once is one acquisition of a random kind, and what is done with it.
func (w *worker) once(ctx context.Context) {
	patience := time.Duration(50+w.random.IntN(3000)) * time.Millisecond
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	called := w.history.now()
	s, h, err := w.take(bounded)
	if err != nil {
		return
	}
	b := w.history.acquired(w.number, s, h, clientv3.LeaseID(leaseOf(h)), called)
	if b == nil {
		_ = h.Unlock(context.WithoutCancel(ctx))
		return
	}
	w.use(ctx, b, h)
}

// take tries to get a lock of some kind, and says which it is.
func (w *worker) take(ctx context.Context) (s step, h *etcdlock.Hold, err error) {
	name := plainNames[w.random.IntN(len(plainNames))]
	rw := etcdlock.NewRWMutex(w.sessions, name)
	s.names = []string{name}
	switch w.random.IntN(15) {
	case 0, 1:
		h, err = etcdlock.NewMutex(w.sessions, name).Lock(ctx)
	case 2:
		h, err = rw.Lock(ctx)
	case 3:
		h, err = rw.TryLock(ctx)
	case 4, 5:
		s.weight = shared
		h, err = rw.RLock(ctx)
	case 6:
		s.weight = shared
		h, err = rw.TryRLock(ctx)
	case 7, 8:
		s.names, s.size, s.weight = []string{"pool"}, poolSize, int64(1+w.random.IntN(2))
		h, err = w.pool.Acquire(ctx, s.weight)
	case 9:
		names := slices.Clone(plainNames)
		w.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		s.names = names[:2]
		h, err = etcdlock.NewMulti(w.sessions, etcdlock.NewMutex(w.sessions, names[0]), etcdlock.NewMutex(w.sessions, names[1])).Lock(ctx)
	case 10:
		var chosen []int
		h, chosen, err = w.striped.AnyN(ctx, 1+w.random.IntN(stripes-1))
		s.names = nil
		for _, i := range chosen {
			s.names = append(s.names, "stock/"+strconv.Itoa(i))
		}
	case 11:
		s.entered = true
		h, err = w.enterTwice(ctx, etcdlock.Reentrant(etcdlock.NewMutex(w.sessions, name)))
	case 12, 13:
		s.names, s.handedOn = []string{"local"}, true
		h, err = w.local.Lock(ctx)
	case 14:
		s.names = []string{"leader"}
		var term *etcdlock.Term
		if term, err = w.election.Campaign(ctx, strconv.Itoa(w.number)); err == nil {
			h = term.Hold
		}
	}
	return s, h, err
}

// enterTwice leaves the inner one again, which changes nothing.
func (w *worker) enterTwice(ctx context.Context, l *etcdlock.ReentrantLock) (*etcdlock.Hold, error) {
	within, h, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	_, again, err := l.Lock(within)
	if err == nil {
		err = again.Unlock(within)
	}
	if err != nil {
		_ = h.Unlock(context.WithoutCancel(ctx))
		return nil, err
	}
	return h, nil
}

// use holds the lock for a while, looking at it all the time, and writes under it.
func (w *worker) use(ctx context.Context, b *belief, h *etcdlock.Hold) {
	until := time.Now().Add(time.Duration(w.random.IntN(40)) * time.Millisecond)
	if w.random.IntN(8) == 0 { // long enough to lose it
		until = until.Add(ttl + time.Duration(w.random.Int64N(int64(ttl))))
	}
	if b.step.weight == exclusive && len(b.step.names) == 1 {
		w.write(ctx, b, h)
		if w.random.IntN(3) == 0 && !b.step.entered && slices.Contains(plainNames, b.step.names[0]) {
			w.downgrade(ctx, b, h)
		}
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(until) && b.look() {
		<-tick.C
	}
	if !b.look() {
		b.lost()
		_ = h.Unlock(context.Background()) // it is over already
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(w.random.IntN(2000))*time.Millisecond)
	defer cancel()
	b.released(h.Unlock(bounded) == nil)
}

// write puts the token into a store that only the lock's owner can write to.
func (w *worker) write(ctx context.Context, b *belief, h *etcdlock.Hold) {
	called := w.history.now()
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := h.Txn(bounded).Then(clientv3.OpPut(fencedData+b.step.names[0], fmt.Sprint(h.Token()))).Commit()
	b.wrote(called, err == nil)
}

// downgrade lets readers in. If its answer is lost, either may be true, so it is tried again.
func (w *worker) downgrade(ctx context.Context, b *belief, h *etcdlock.Hold) {
	called := b.loosening()
	for b.look() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		err := h.Downgrade(bounded)
		cancel()
		if err == nil || errors.Is(err, etcdlock.ErrLost) {
			break
		}
	}
	if h.Shared() {
		b.downgraded(called)
	}
}

// leaseOf reads the lease out of the name of the hold's key.
func leaseOf(h *etcdlock.Hold) int64 {
	name := h.Key()[1+lastSlash(h.Key())+1:]
	for i, c := range name {
		if c == '-' {
			name = name[:i]
			break
		}
	}
	lease, _ := strconv.ParseInt(name, 16, 64)
	return lease
}

func lastSlash(key string) int {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			return i
		}
	}
	return -1
}

// everything takes every lock once, as somebody has to be able to after a storm.
func (w *worker) everything(ctx context.Context) error {
	var locks []etcdlock.Locker
	for _, name := range plainNames {
		locks = append(locks, etcdlock.NewMutex(w.sessions, name), etcdlock.NewRWMutex(w.sessions, name).RLocker())
	}
	for i := range stripes {
		locks = append(locks, w.striped.Stripe(i))
	}
	locks = append(locks, w.pool, w.local)
	for _, l := range locks {
		err := persist(func() error {
			h, err := l.Lock(ctx)
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
		term, err := w.election.Campaign(ctx, "after the storm")
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
