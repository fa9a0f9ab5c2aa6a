package link

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// aloneLimit is how many transactions may be in flight before others collect.
	aloneLimit = 4

	// sharedLimit is how many requests may be in flight when those that have collected are sent: more
	// would leave less to collect.
	sharedLimit = 4

	// apartLimit is how many requests may be in flight when those are sent that cannot share one.
	apartLimit = 128

	// bytesLimit keeps a shared request well below etcd's --max-request-bytes of 1.5 MiB.
	bytesLimit = 512 << 10

	// overdue is when a request does not count as in flight any longer: its endpoint may be silent.
	overdue = 100 * time.Millisecond
)

// coalescer has transactions of one kind share requests.
type coalescer struct {
	link  *Link
	reads bool

	mu         sync.Mutex
	waiting    []*pending
	inFlight   []*sending     // the oldest first, without those that are overdue
	carried    int            // transactions in them
	unanswered int            // requests, overdue or not
	apart      map[string]int // how many wait with each Apart
	blocked    int            // how many of those have to wait for another request than the first of them
	alone      int            // transactions in flight from which on others collect
	limit      int            // of transactions in a request; less than usual where etcd allows less
	operations int            // that etcd allows a transaction
	timer      *time.Timer    // runs while anything waits; nil until something has
}

// coalescers are by what must not share a request: a read with a write would be a raft entry, and one
// that any member may answer would have to wait for the quorum.
type coalescers struct{ writes, reads, local coalescer }

func (all *coalescers) init(l *Link) {
	for _, c := range []*coalescer{&all.writes, &all.reads, &all.local} {
		c.link, c.alone, c.limit, c.operations = l, aloneLimit, batchLimit, operationLimit
		c.reads = c != &all.writes
		c.apart = make(map[string]int)
	}
}

func (all *coalescers) of(t Transaction) *coalescer {
	switch {
	case !t.reads():
		return &all.writes
	case slices.ContainsFunc(t.Then, func(op clientv3.Op) bool { return !op.IsSerializable() }):
		return &all.reads
	}
	return &all.local
}

// attempt sends t once, alone or with others, for at most limit.
func (c *coalescer) attempt(ctx context.Context, t Transaction, doubts int, limit time.Duration) outcome {
	if err := ctx.Err(); err != nil {
		return outcome{err: request.Unsent(err)}
	}
	p := &pending{
		Transaction: t, moment: t.Epoch.moment(), doubts: doubts,
		link: c.link, limit: limit,
	}
	if r := c.enqueue(p); r != nil {
		return c.sendAlone(ctx, p, r)
	}
	c.flush(false)
	return c.wait(ctx, p)
}

// enqueue has p wait for others, or returns its request if nothing is to be gained by waiting.
func (c *coalescer) enqueue(p *pending) *sending {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropOverdue()
	if p.Alone || c.carried < c.alone && len(c.waiting) == 0 || p.depth() > c.largest() || p.size() > bytesLimit {
		return c.take([]*pending{p})
	}
	p.done = make(chan struct{})
	c.waiting = append(c.waiting, p)
	c.count(p, 1)
	if len(c.waiting) > 1 {
		return nil
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(overdue, func() { c.flush(true) })
	} else {
		c.timer.Reset(overdue)
	}
	return nil
}

// flush sends requests for as long as it is time for one. Late says that nothing is to wait any longer.
func (c *coalescer) flush(late bool) {
	for r := c.next(late); r != nil; r = c.next(false) {
		c.start(r)
	}
}

// next takes the transactions of the next request, if it is time for it.
func (c *coalescer) next(late bool) *sending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || !late && !c.ready() {
		return nil
	}
	taken := make(map[string]bool, len(c.waiting))
	var carry []*pending
	operations, bytes := 0, 0
	c.waiting = slices.DeleteFunc(c.waiting, func(p *pending) bool {
		if len(carry) == c.limit || taken[p.Apart] {
			return false
		}
		if len(carry) > 0 && (p.limit != carry[0].limit || bytes+p.size() > bytesLimit) {
			return false // an attempt that has more time would have the others wait for as long
		}
		if c.reads && len(carry) > 0 && operations+len(p.Then) > c.largest() {
			return false // in a transaction of its own it would be a raft entry
		}
		operations, bytes = operations+len(p.Then), bytes+p.size()
		taken[p.Apart] = p.Apart != ""
		c.count(p, -1)
		carry = append(carry, p)
		return true
	})
	if len(c.waiting) > 0 {
		c.timer.Reset(overdue)
	} else {
		c.timer.Stop()
	}
	slices.SortStableFunc(carry, func(a, b *pending) int { return min(len(a.Apart), 1) - min(len(b.Apart), 1) })
	r := c.take(carry)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.wanted.Store(int32(len(carry)))
	return r
}

// ready reports whether it is time to send: when nothing is in flight, or as many wait as are in flight, so
// that the requests take turns and none is nearly empty; or when some cannot share a request anyway.
func (c *coalescer) ready() bool {
	c.dropOverdue()
	n := min(len(c.waiting)-c.blocked, c.limit)
	if len(c.inFlight) == 0 || c.blocked > 0 && c.unanswered < apartLimit {
		return true
	}
	return len(c.inFlight) < sharedLimit && (n == c.limit || n >= c.carried)
}

// count keeps account of those that wait and cannot share a request.
func (c *coalescer) count(p *pending, change int) {
	if p.Apart == "" {
		return
	}
	before := c.apart[p.Apart]
	if c.apart[p.Apart] = before + change; c.apart[p.Apart] == 0 {
		delete(c.apart, p.Apart)
	}
	c.blocked += max(before+change-1, 0) - max(before-1, 0)
}

// take counts a request as in flight.
func (c *coalescer) take(carry []*pending) *sending {
	r := &sending{sent: time.Now(), carry: carry}
	c.inFlight = append(c.inFlight, r)
	c.carried += len(carry)
	c.unanswered++
	for _, p := range carry {
		p.request = r
	}
	return r
}

func (c *coalescer) dropOverdue() {
	for len(c.inFlight) > 0 && time.Since(c.inFlight[0].sent) >= overdue {
		c.remove(0)
	}
}

func (c *coalescer) remove(i int) {
	c.carried -= len(c.inFlight[i].carry)
	c.inFlight = slices.Delete(c.inFlight, i, i+1)
}

// answered stops counting r.
func (c *coalescer) answered(r *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered--
	if i := slices.Index(c.inFlight, r); i >= 0 {
		c.remove(i)
	}
}

// allowLess learns that etcd does not take as much as carry in a request.
func (c *coalescer) allowLess(carry []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reads {
		c.limit = min(c.limit, len(carry)/2)
		return
	}
	operations := 0
	for _, p := range carry {
		operations += len(p.Then)
	}
	c.operations = min(c.operations, max(operations/2, 1))
}

// largest is how many operations a transaction may have that shares a request, and reads together. It
// is called with mu held.
func (c *coalescer) largest() int {
	if c.reads {
		return min(batchLimit, c.operations)
	}
	return batchLimit
}
