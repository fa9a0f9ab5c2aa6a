package proof_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How long after the end of its context or client, or of all trouble, a call may take to return. It
// is far more than is promised, because it is for a machine that is busy.
const (
	returnsWithin = 15 * time.Second
	servedWithin  = time.Minute      // after all trouble, with others ahead
	toldWithin    = 25 * time.Second // that a hold is lost, after all trouble
)

// call is one that is under way.
type call struct {
	what   string
	began  moment
	limit  int64         // by when its context ends, or never
	closed *atomic.Int64 // when its client was closed; 0: it is open. May be nil.
}

// calls watches over all that are under way: each has to return.
type calls struct {
	now  func() int64
	over atomic.Int64 // when the last trouble was mended; 0: not yet

	mu     sync.Mutex
	active map[*call]bool
	late   string // what the library and the tests did when one was late
}

func (c *calls) begin(ctx context.Context, what string, began moment, closed *atomic.Int64) *call {
	one := &call{what: what, began: began, limit: math.MaxInt64, closed: closed}
	if deadline, ok := ctx.Deadline(); ok {
		one.limit = c.now() + int64(time.Until(deadline))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active[one] = true
	return one
}

func (c *calls) end(one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, one)
}

// due returns by when a call has to have returned.
func (c *calls) due(one *call) int64 {
	due := int64(math.MaxInt64)
	if one.limit < due {
		due = one.limit + int64(returnsWithin)
	}
	if over := c.over.Load(); over > 0 {
		due = min(due, over+int64(servedWithin))
	}
	if one.closed != nil && one.closed.Load() > 0 {
		due = min(due, one.closed.Load()+int64(returnsWithin))
	}
	return due
}

// overdue returns a call that should have returned, if there is one.
func (c *calls) overdue() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for one := range c.active {
		if now < c.due(one) {
			continue
		}
		if c.late == "" {
			c.late = strings.Join(stacks("locks/session.", "locks/internal/", "locks/fairqueue.", "locks/etcdlock."), "\n\n")
		}
		return fmt.Sprintf("%s, called at %v, has not returned at %v", one.what, time.Duration(one.began.at), time.Duration(now)), true
	}
	return "", false
}

// await waits until done is closed, or a call is overdue.
func (c *calls) await(done <-chan struct{}) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			if late, is := c.overdue(); is {
				return fmt.Errorf("%s\n%s", late, c.late)
			}
		}
	}
}
