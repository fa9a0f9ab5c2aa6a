package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

var (
	plainNames = []string{"a", "b", "c"}                                  // taken in all ways
	wideNames  = []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"} // by a Mutex, many at a time
)

// user is one goroutine of a worker.
type user struct {
	*worker
	number int
	random *rand.Rand
	turns  int
}

// take is an attempt at a lock, and what there is to know of it.
type take struct {
	step
	life  *life
	term  *etcdlock.Term
	value string // of a candidate
	// confirmed is whether an Unlock that returns nil says that the keys are gone.
	confirmed bool
}

// once is one acquisition of a random kind, and what is done with it. Errors are expected: what
// counts is what is believed.
func (u *user) once(ctx context.Context) {
	u.turns++
	bounded, cancel := u.patience(ctx)
	defer cancel()
	t := &take{life: u.life.Load(), confirmed: true}
	lock := u.choose(t)
	var h *etcdlock.Hold
	var err error
	what := fmt.Sprintf("client %d, %v", u.number, t.step)
	began, done := u.during(bounded, t.life, what, func() { h, err = lock(bounded) })
	if err != nil {
		if u.history.refused(err); t.life.closed.Load() > 0 {
			wait(ctx, 20*time.Millisecond) // until there is another
		}
		return
	}
	b := u.history.acquired(u.number, t.step, h, leaseOf(h), began.at)
	noted(u.history, &u.history.grants, grant{what, b.tickets, began, done, t.value})
	u.use(ctx, t, b, h)
}

// patience is how long a call may wait: without a limit, for about one answer in bad times, or for some turns.
func (u *user) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	switch u.random.IntN(4) {
	case 0:
		return context.WithCancel(context.WithoutCancel(ctx))
	case 1:
		return context.WithTimeout(ctx, time.Duration(1+u.random.IntN(100))*time.Millisecond)
	}
	return context.WithTimeout(ctx, time.Duration(50+u.random.IntN(3000))*time.Millisecond)
}

type locking func(context.Context) (*etcdlock.Hold, error)

// choose picks a kind of lock.
func (u *user) choose(t *take) locking {
	l, name := t.life, plainNames[u.random.IntN(len(plainNames))]
	t.names = []string{name}
	switch u.random.IntN(26) {
	case 0, 1, 2, 3, 20, 21, 22, 23:
		t.names = []string{wideNames[u.random.IntN(len(wideNames))]}
		return etcdlock.NewMutex(l.sessions, t.names[0], l.counted).Lock
	case 4:
		return etcdlock.NewMutex(l.sessions, name, l.counted).TryLock
	case 5:
		return etcdlock.NewRWMutex(l.sessions, name, l.counted).Lock
	case 6:
		t.weight = shared
		return etcdlock.NewRWMutex(l.sessions, name, l.counted).RLock
	case 7:
		t.weight = shared
		return etcdlock.NewRWMutex(l.sessions, name, l.counted).TryRLock
	case 24, 25:
		t.weight = upgradeable
		if u.random.IntN(4) == 0 {
			return etcdlock.NewRWMutex(l.sessions, name, l.counted).TryLockUpgradeable
		}
		return etcdlock.NewRWMutex(l.sessions, name, l.counted).LockUpgradeable
	case 8:
		t.confirmed = false
		t.names = []string{"slow"}
		return etcdlock.NewMutex(l.sessions, "slow", l.counted, etcdlock.WithMinHold(50*time.Millisecond)).Lock
	case 9:
		return u.several(t)
	case 10, 11:
		return u.stripes(t)
	case 12:
		t.entered = true
		return func(ctx context.Context) (*etcdlock.Hold, error) {
			return enterTwice(ctx, etcdlock.Reentrant(etcdlock.NewMutex(l.sessions, name, l.counted)))
		}
	case 13, 14:
		t.names, t.handedOn, t.confirmed = []string{"local"}, true, false
		return l.local.Lock
	case 15:
		t.names, t.handedOn, t.confirmed = []string{"kept"}, true, false
		return l.kept.Lock
	case 16, 17:
		return u.campaign(t)
	default:
		return u.permits(t)
	}
}

func (u *user) several(t *take) locking {
	names := slices.Clone(plainNames)
	u.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	t.names = names[:2]
	m := etcdlock.NewMulti(t.life.sessions, etcdlock.NewMutex(t.life.sessions, names[0]), etcdlock.NewRWMutex(t.life.sessions, names[1])).
		With(t.life.counted)
	if u.random.IntN(3) == 0 {
		return m.TryLock
	}
	return m.Lock
}

func (u *user) stripes(t *take) locking {
	n, try := 1+u.random.IntN(stripes-1), u.random.IntN(4) == 0
	t.names = []string{"stock"} // until it is known
	return func(ctx context.Context) (h *etcdlock.Hold, err error) {
		var chosen []int
		if try {
			h, chosen, err = t.life.striped.TryAnyN(ctx, n)
		} else {
			h, chosen, err = t.life.striped.AnyN(ctx, n)
		}
		t.names = nil
		for _, i := range chosen {
			t.names = append(t.names, "stock/"+strconv.Itoa(i))
		}
		return h, err
	}
}

func (u *user) permits(t *take) locking {
	t.size, t.weight = poolSize, 1
	if u.random.IntN(3) == 0 {
		return u.slot(t)
	}
	t.names, t.weight = []string{"pool"}, int64(1+u.random.IntN(2))
	if u.random.IntN(4) == 0 {
		return func(ctx context.Context) (*etcdlock.Hold, error) { return t.life.pool.TryAcquire(ctx, t.weight) }
	}
	return func(ctx context.Context) (*etcdlock.Hold, error) { return t.life.pool.Acquire(ctx, t.weight) }
}

// slot takes a number, which nobody else has at the time, and tokens tell its owners apart.
func (u *user) slot(t *take) locking {
	t.names, t.weight = []string{"numbered"}, exclusive
	return func(ctx context.Context) (*etcdlock.Hold, error) {
		h, err := t.life.numbered.Lock(ctx)
		if err == nil {
			number, _ := h.Slot()
			t.names = []string{"numbered/" + strconv.Itoa(number)}
		}
		return h, err
	}
}

// campaign stands with a value that nobody else has.
func (u *user) campaign(t *take) locking {
	t.names, t.value = []string{"leader"}, fmt.Sprintf("%d/%d", u.number, u.turns)
	e := t.life.elections[u.random.IntN(len(t.life.elections))]
	return func(ctx context.Context) (h *etcdlock.Hold, err error) {
		if t.term, err = e.Campaign(ctx, t.value); err != nil {
			return nil, err
		}
		return t.term.Hold, nil
	}
}

// enterTwice leaves the inner one again, which changes nothing.
func enterTwice(ctx context.Context, l *etcdlock.ReentrantLock) (*etcdlock.Hold, error) {
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

// leaseOf reads the lease out of the name of the hold's key.
func leaseOf(h *etcdlock.Hold) clientv3.LeaseID {
	name := h.Key()[strings.LastIndexByte(h.Key(), '/')+1:]
	digits, _, _ := strings.Cut(name[1:], "-") // after the mode
	lease, _ := strconv.ParseInt(digits, 16, 64)
	return clientv3.LeaseID(lease)
}
