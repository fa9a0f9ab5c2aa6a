package k8slock

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/etcdlock/locks/etcdlock"
)

// candidate is one stay in the line of an election, from a Get until the term is resigned. It has one term that
// client-go takes, at most. The mutex of its Lock guards its fields.
type candidate struct {
	leave func()        // ends the stay, and the term as soon as client-go has stopped
	done  chan struct{} // closed when the line has been left

	leader etcdlock.Leader // as observed

	term    *etcdlock.Term  // nil: none
	leading context.Context // ends with the term, with leave, or when the candidate is unhealthy
	taken   bool            // client-go has been told that it leads
	stopped bool            // and has stopped since
	working int             // functions of Wrap
	record  resourcelock.LeaderElectionRecord
}

// believed reports whether client-go believes that it leads.
func (c *candidate) believed() bool { return c.taken && !c.stopped }

// end returns why the term is over, or nil. It looks at the clock, so it is right even after the process was
// suspended.
func (c *candidate) end() error {
	if err := c.term.Err(); err != nil {
		return err
	}
	return context.Cause(c.leading)
}

// stand starts a candidate. It is called with mu held.
func (l *Lock) stand() {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &candidate{leave: func() { cancel(etcdlock.ErrClosed) }, done: make(chan struct{})}
	l.current = c
	go l.run(ctx, c)
}

// run ends when c leaves, or when the election refuses it for good.
func (l *Lock) run(ctx context.Context, c *candidate) {
	defer close(c.done)
	var observing sync.WaitGroup
	observing.Go(func() { l.observe(ctx, c) })
	err := l.election.Run(ctx, l.identity, func(leading context.Context, term *etcdlock.Term) error {
		l.lead(leading, c, term)
		return nil
	})
	left := ctx.Err() != nil
	c.leave()
	observing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	if !left {
		l.failed, l.retry = err, time.Now().Add(retryPause)
	}
	l.change()
}

// observe notes the leaders. What keeps it from observing keeps the candidate from standing, too, and is reported
// there.
func (l *Lock) observe(ctx context.Context, c *candidate) {
	for leader, err := range l.election.Observe(ctx) {
		if err != nil {
			continue
		}
		l.mu.Lock()
		c.leader = leader
		l.change()
		l.mu.Unlock()
	}
}

// lead offers the term to client-go. It returns, which resigns, when the term is over and client-go does not believe
// in it any more: it would take the next term for the same one. If client-go has taken the term, the stay ends with
// it, since the process may be about to end. The next Get stands again.
func (l *Lock) lead(leading context.Context, c *candidate, term *etcdlock.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.term, c.leading = term, leading
	l.change()
	l.wait(leading.Done())
	if c.taken {
		c.leave()
	}
	for c.believed() || c.working > 0 {
		l.wait(l.changed)
	}
	c.term = nil
}

// wait waits with mu unlocked.
func (l *Lock) wait(done <-chan struct{}) {
	l.mu.Unlock()
	defer l.mu.Lock()
	<-done
}

// stop notes that client-go has stopped leading. It is called with mu held.
func (l *Lock) stop(c *candidate) {
	c.stopped = true
	l.change()
}
