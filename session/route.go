package session

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// aloneLimit is how many transactions may be under way before others collect.
	aloneLimit = 4

	// togetherLimit is how many requests may be under way when those who have collected go out: more
	// would leave less to collect.
	togetherLimit = 4

	// apartLimit is how many requests may be under way when those go out who cannot go together.
	apartLimit = 128

	// operationLimit is etcd's default, which it counts along each path into nested
	// transactions.
	operationLimit = 128

	// batchLimit leaves as many operations to each transaction as there may be of them.
	batchLimit = operationLimit / 2

	// overdue is when a request does not count as under way any longer: its endpoint may be silent.
	overdue = 100 * time.Millisecond
)

// passenger is a transaction that waits to go out, or is under way with others.
type passenger struct {
	Transaction
	limit time.Duration // of the attempt

	answered chan struct{} // closed when what follows is there
	once     sync.Once
	outcome
}

// outcome is what becomes of a passenger.
type outcome struct {
	answer   *clientv3.TxnResponse
	err      error
	timedOut bool
	again    bool // it has to go alone
}

// hear tells who waits for p what became of it. The first to tell is right.
func (p *passenger) hear(o outcome) {
	p.once.Do(func() {
		p.outcome = o
		close(p.answered)
	})
}

// flight is a request that is under way.
type flight struct {
	number int64
	began  time.Time
	aboard int // how many transactions
}

// route is the requests of one kind that a session has under way, and what waits to go out next.
type route struct {
	session *Session
	reads   bool

	mu         sync.Mutex
	flights    []flight // the oldest first, without those that are overdue
	last       int64    // number of a flight
	aboard     int      // of all of them
	away       int      // requests that are not answered, overdue or not
	waiting    []*passenger
	apart      map[string]int // of those: how many there are of each
	alike      int            // how many have to stay apart from one that came before
	limit      int            // of a batch
	operations int            // how many a request may have
	caution    caution
	overdue    *time.Timer // runs while somebody waits; nil until somebody has
}

// routes are by what must not go out together: a read with a write would be a raft entry, and one that
// any member may answer would have to wait for the quorum.
type routes struct{ writes, reads, local route }

func (r *routes) start(s *Session) {
	for _, one := range []*route{&r.writes, &r.reads, &r.local} {
		one.session, one.limit, one.operations = s, batchLimit, operationLimit
		one.reads = one != &r.writes
		one.apart = make(map[string]int)
	}
}

func (r *routes) of(t Transaction) *route {
	switch {
	case !t.reads():
		return &r.writes
	case slices.ContainsFunc(t.Then, func(op clientv3.Op) bool { return !op.IsSerializable() }):
		return &r.reads
	}
	return &r.local
}

// board says to go at once, as the only one of a flight of that number, or returns the passenger that t has become.
func (r *route) board(t Transaction, limit time.Duration) (p *passenger, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.overlook()
	if t.Alone || r.aboard < aloneLimit && len(r.waiting) == 0 || t.depth() > r.largest() {
		return nil, r.take(1)
	}
	p = &passenger{Transaction: t, limit: limit, answered: make(chan struct{})}
	r.waiting = append(r.waiting, p)
	r.count(p, 1)
	if len(r.waiting) == 1 {
		r.patience(func() { r.depart(true) })
	}
	return p, 0
}

// count keeps account of those who wait and have to stay apart.
func (r *route) count(p *passenger, change int) {
	if p.Apart == "" {
		return
	}
	before := r.apart[p.Apart]
	if r.apart[p.Apart] = before + change; r.apart[p.Apart] == 0 {
		delete(r.apart, p.Apart)
	}
	r.alike += max(before+change-1, 0) - max(before-1, 0)
}

// take counts a request as under way.
func (r *route) take(aboard int) (number int64) {
	r.last++
	r.flights = append(r.flights, flight{r.last, time.Now(), aboard})
	r.aboard += aboard
	r.away++
	return r.last
}

// overlook stops counting what is overdue.
func (r *route) overlook() {
	for len(r.flights) > 0 && time.Since(r.flights[0].began) >= overdue {
		r.remove(0)
	}
}

func (r *route) remove(i int) {
	r.aboard -= r.flights[i].aboard
	r.flights = slices.Delete(r.flights, i, i+1)
}

func (r *route) patience(end func()) {
	if r.overdue == nil {
		r.overdue = time.AfterFunc(overdue, end)
	} else {
		r.overdue.Reset(overdue)
	}
}

// wait returns nil when p has been answered, and otherwise why that is not waited for any longer.
func (r *route) wait(ctx context.Context, p *passenger) error {
	over := mayBeOver(ctx)
	for {
		select {
		case <-p.answered:
			return nil
		case <-over:
			if err := ctx.Err(); err != nil {
				return err
			}
			over = ctx.Done()
		case <-r.session.ctx.Done():
			return context.Cause(r.session.ctx)
		}
	}
}

// withdraw reports whether m has not been sent, and will not be.
func (r *route) withdraw(m *passenger) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting, m)
	if i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.count(m, -1)
	}
	return i >= 0
}

// ready reports whether it is time for those who wait: when nothing is under way, or they are as many
// as all that are, so that the flights take turns and none goes out nearly empty; or when some
// have to stay apart anyway.
func (r *route) ready() bool {
	r.overlook()
	n := min(len(r.waiting)-r.alike, r.limit)
	switch {
	case n == 0:
		return false
	case len(r.flights) == 0, r.alike > 0 && r.away < apartLimit:
		return true
	}
	return len(r.flights) < togetherLimit && (n == r.limit || n >= r.aboard)
}

// next takes those who go out next, if it is time, or nobody is to wait any longer.
func (r *route) next(late bool) (batch []*passenger, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready() && !(late && len(r.waiting) > 0) {
		return nil, 0
	}
	taken := make(map[string]bool, len(r.waiting))
	operations := 0
	r.waiting = slices.DeleteFunc(r.waiting, func(m *passenger) bool {
		if len(batch) == r.limit || taken[m.Apart] {
			return false
		}
		if r.reads && len(batch) > 0 && operations+len(m.Then) > r.largest() {
			return false // within a transaction of its own it would be a raft entry
		}
		operations += len(m.Then)
		taken[m.Apart] = m.Apart != ""
		r.count(m, -1)
		batch = append(batch, m)
		return true
	})
	if len(r.waiting) > 0 {
		r.overdue.Reset(overdue)
	} else {
		r.overdue.Stop()
	}
	slices.SortStableFunc(batch, func(a, b *passenger) int { return min(len(a.Apart), 1) - min(len(b.Apart), 1) })
	return batch, r.take(len(batch))
}

// land is called when a request is no longer under way.
func (r *route) land(number int64) {
	r.mu.Lock()
	r.away--
	if i := slices.IndexFunc(r.flights, func(f flight) bool { return f.number == number }); i >= 0 {
		r.remove(i)
	}
	r.mu.Unlock()
	r.depart(false)
}

// depart sends the next batches, as long as it is time for one.
func (r *route) depart(late bool) {
	for batch, number := r.next(late); batch != nil; batch, number = r.next(false) {
		s := r.session
		s.mu.Lock()
		s.spawn(func(context.Context) { r.fly(batch, number) }) // or else those who wait find out by themselves
		s.mu.Unlock()
	}
}

// largest is how many operations one may have that goes out with others, and reads together. It is called
// with mu held.
func (r *route) largest() int {
	if r.reads {
		return min(batchLimit, r.operations)
	}
	return batchLimit
}
