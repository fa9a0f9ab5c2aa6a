package etcdlock

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// pauseless is less time than it takes to remove a key and to lock its name, which are two
	// requests, one after the other.
	pauseless = 50 * time.Microsecond
	// longestTrust bounds how long an ownership that is used without a pause is trusted without a question.
	longestTrust = 5 * time.Millisecond
	// confirmLimit is how long others may wait because of a question that is not answered.
	confirmLimit = 250 * time.Millisecond
)

// ownership is a granted ticket that several holds have, one after the other. The line's mu guards the
// fields that change.
type ownership struct {
	line   *line
	ticket *fairqueue.Ticket
	watch  func() // for the loss of the ticket; only the first call does anything
	end    func() // of all that runs for it

	since  time.Time   // of the grant, or of the last answer that nobody else is in the queue
	grants int         // in memory since then
	held   bool        // by a claim or by await
	hold   *Hold       // of that claim; nil: not bound yet
	wanted bool        // by another process, as far as is known
	lost   error       // nil as far as is known
	asked  time.Time   // when etcd last confirmed that the ticket is there; zero: never
	used   time.Time   // when it was last handed on, kept or taken again
	expiry *time.Timer // of the time for which it is kept
}

// begin makes t, which has been granted, the current ownership. It is called with mu held.
func (l *line) begin(t *fairqueue.Ticket) *ownership {
	ctx, cancel := context.WithCancel(context.Background())
	s := t.Session()
	o := &ownership{line: l, ticket: t, since: time.Now(), held: true}
	o.watch = sync.OnceFunc(func() { go o.untilLost(ctx) })
	later := time.AfterFunc(watchAfter, o.watch)
	detach := context.AfterFunc(s.Context(), func() { o.gone(s.Err()) })
	o.expiry = time.AfterFunc(max(l.idle, time.Second), func() { l.drop(o) }) // which does nothing while it is held
	o.end = func() {
		cancel()
		later.Stop()
		detach()
		o.expiry.Stop()
	}
	l.current = o
	return o
}

// take gives o to a claim. It is called with mu held.
func (o *ownership) take() {
	o.held = true
	o.grants++
}

// leave gives the ticket back. A nil o is none.
func (o *ownership) leave(ctx context.Context) error {
	if o == nil {
		return nil
	}
	o.end()
	return o.ticket.Leave(ctx)
}

// discard is leave where no caller waits. What is not confirmed in time the session goes on with.
func (o *ownership) discard() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = o.leave(ctx)
}

// untilLost waits for the loss of the ticket and, if o may be kept, for other processes that want it. It ends with o.
func (o *ownership) untilLost(ctx context.Context) {
	if o.line.idle > 0 {
		if err := o.ticket.Wanted(ctx); !errors.Is(err, ErrLost) { // another error: it may be wanted
			o.line.mu.Lock()
			o.wanted = true
			o.line.mu.Unlock()
			o.line.drop(o)
		}
	}
	untilLost(ctx, o.ticket.Lost, o.gone)
}

func (o *ownership) gone(err error) {
	o.line.mu.Lock()
	defer o.line.mu.Unlock()
	o.line.lose(o, err)
}

// trusted reports whether the next hold may have o without a question to etcd. The ticket may have
// been removed by hand, and another process may have the lock. A goroutine that calls Lock after that
// must not be granted it. So there is a question after each pause, and every so often without one.
func (o *ownership) trusted(now time.Time) bool {
	return now.Sub(o.used) < pauseless && now.Sub(o.asked) < longestTrust
}

// confirm reports whether the ticket is there, so that o may be handed on or kept. It is called with mu held,
// and unlocks it while it asks etcd; o stays held meanwhile.
func (l *line) confirm(ctx context.Context, o *ownership) bool {
	now := time.Now()
	if o.trusted(now) && (len(l.waiting) == 0 || !l.spent(o)) {
		o.used = now
		return true
	}
	l.mu.Unlock()
	alone, err := o.ask(ctx)
	l.mu.Lock()
	if errors.Is(err, fairqueue.ErrGone) {
		l.lose(o, err)
	}
	if err != nil {
		return false
	}
	o.asked, o.used = now, time.Now()
	if alone {
		o.since, o.grants = now, 0 // a process that comes later waits no longer than the bound
	} else {
		o.wanted = true
	}
	return true
}

// ask reads whether the ticket is there, and alone in etcd's queue.
func (o *ownership) ask(ctx context.Context) (alone bool, err error) {
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, confirmLimit)
	defer stop()
	return o.ticket.Alone(ctx)
}

// Ahead is that of a claim for which only o is in the way.
func (o *ownership) Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	t := o.ticket
	answer, err := t.Session().Client().Get(ctx, t.Key(), clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != t.Revision() {
		return fairqueue.Entry{}, 0, false
	}
	owner = fairqueue.Entry{Key: t.Key(), Revision: t.Revision(), Value: answer.Kvs[0].Value}
	_ = json.Unmarshal(owner.Value, &owner.Owner) // the value says the rest
	return owner, 1, true
}

// localClaim is the claim of one Lock of a line. It has a ticket from the start, or waits in memory.
type localClaim struct {
	*fairqueue.Ticket // nil while it waits in memory
	line              *line
	own               *ownership // nil before the grant

	granted chan grant  // ends the wait in memory
	limited bool        // that wait is, in time
	behind  interface { // what it waited for in memory; nil: nothing is in etcd's queue yet
		Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool)
	}
}

// grant is how a wait in memory ends.
type grant struct {
	own *ownership
	err error
}

// Key is empty in memory.
func (c *localClaim) Key() string {
	if c.Ticket == nil {
		return ""
	}
	return c.Ticket.Key()
}

// Revision is 0 in memory.
func (c *localClaim) Revision() int64 {
	if c.Ticket == nil {
		return 0
	}
	return c.Ticket.Revision()
}

func (c *localClaim) Granted() bool { return c.own != nil || c.Ticket != nil && c.Ticket.Granted() }

// Ahead counts the tickets in etcd's queue. In memory, others may be ahead besides.
func (c *localClaim) Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	switch {
	case c.Ticket != nil:
		return c.Ticket.Ahead(ctx)
	case c.behind != nil:
		return c.behind.Ahead(ctx)
	}
	return fairqueue.Entry{}, 0, false
}

func (c *localClaim) Wait(ctx context.Context) error {
	var err error
	switch {
	case c.own != nil: // it was kept
	case c.Ticket != nil:
		if err = c.Ticket.Wait(ctx); err == nil {
			c.line.mu.Lock()
			c.own = c.line.begin(c.Ticket)
			c.own.take()
			c.line.mu.Unlock()
		}
	default:
		err = c.waitInMemory(ctx)
	}
	if err != nil {
		return err
	}
	if err = ctx.Err(); err == nil {
		err = c.Session().Err()
	}
	if err != nil {
		_ = c.release(ctx) // err is returned
	}
	return err
}

func (c *localClaim) waitInMemory(ctx context.Context) error {
	var g grant
	select {
	case g = <-c.granted:
	case <-ctx.Done():
		if c.stopWaiting() {
			return ctx.Err()
		}
		g = <-c.granted // at the same moment
	}
	if g.err == nil {
		c.own, c.Ticket = g.own, g.own.ticket
	}
	return g.err
}

// stopWaiting reports whether c was still waiting in memory.
func (c *localClaim) stopWaiting() bool {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, c)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if l.current != nil {
		c.behind = l.current
	} else if l.ticket != nil {
		c.behind = l.ticket
	}
	l.standDown()
	return true
}

func (c *localClaim) bind(h *Hold) {
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	if c.own.hold = h; c.own.lost != nil {
		h.end(c.own.lost)
	}
}

func (c *localClaim) gone(err error) { c.own.gone(err) }

func (c *localClaim) release(ctx context.Context) error { return c.line.release(ctx, c.own) }
