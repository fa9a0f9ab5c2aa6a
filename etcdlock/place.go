package etcdlock

import (
	"context"
	"encoding/json"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// place is a claim on what a line has or will have.
type place struct {
	line   *line
	ticket *fairqueue.Ticket // of its own, where nothing is handed on
	ready  chan struct{}     // of one who waits in memory: tells it, once, that one of the following is there
	own    *ownership
	err    error

	limited bool // whether it waits for a limited time

	// ahead is Ahead of one who has given up waiting in memory. It may be nil.
	ahead func(context.Context) (owner fairqueue.Entry, ahead int, ok bool)
}

// take is called with mu held.
func (p *place) take(o *ownership) {
	o.held = true
	o.grants++
	p.own = o
}

func (p *place) bind(h *Hold) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.ready != nil { // empty again
		p.line.spare, p.ready = p.ready, nil
	}
	if p.own.hold = h; p.own.lost != nil {
		h.end(p.own.lost)
	}
}

func (p *place) Wait(ctx context.Context) error {
	trusted := p.ticket == nil && p.ready == nil // it was kept, and has just been looked at
	switch {
	case trusted:
	case p.ticket != nil:
		if err := p.ticket.Wait(ctx); err != nil {
			return err
		}
		p.line.mu.Lock()
		p.take(p.line.begin(p.ticket))
		p.line.mu.Unlock()
	default:
		select {
		case <-p.ready:
		case <-ctx.Done():
			if p.line.leave(p) {
				return ctx.Err()
			}
			<-p.ready // at the same moment
		}
		if p.err != nil {
			return p.err
		}
	}
	err := ctx.Err()
	if err == nil && !trusted {
		err = p.Session().Err()
	}
	if err != nil {
		_ = p.release(ctx) // the error tells what is wrong
	}
	return err
}

// stand takes a place at the end of those who wait in memory. It is called with mu held.
func (l *line) stand(ctx context.Context) *place {
	_, limited := ctx.Deadline()
	p := &place{line: l, ready: l.spare, limited: limited}
	if l.spare = nil; p.ready == nil {
		p.ready = make(chan struct{}, 1)
	}
	l.waiting = append(l.waiting, p)
	return p
}

// standDown gives up the place in etcd's line if there is nobody to stand for. It is called with mu
// held.
func (l *line) standDown() {
	if len(l.waiting) == 0 && l.stop != nil {
		l.stop()
	}
}

// leave reports whether p was still waiting.
func (l *line) leave(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, p)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	switch o := l.current; { // before the place in etcd's line is given up
	case o != nil:
		p.ahead = o.first
	case l.inLine != nil:
		p.ahead = l.inLine.Ahead
	}
	l.standDown()
	return true
}

func (p *place) Granted() bool {
	return p.owned() != nil || p.ticket != nil && p.ticket.Granted()
}

// owned returns what p has by now, or nil.
func (p *place) owned() *ownership {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.own
}

// standing is the ticket that p has, or will have alone; nil for one who waits in memory.
func (p *place) standing() *fairqueue.Ticket {
	if o := p.owned(); o != nil {
		return o.ticket
	}
	return p.ticket
}

func (p *place) Key() string {
	if t := p.standing(); t != nil {
		return t.Key()
	}
	return ""
}

func (p *place) Revision() int64 {
	if t := p.standing(); t != nil {
		return t.Revision()
	}
	return 0
}

func (p *place) Session() *session.Session { return p.own.ticket.Session() }
func (p *place) Guards() []clientv3.Cmp    { return p.own.ticket.Guards() }

func (p *place) Lost(ctx context.Context) error { return p.own.ticket.Lost(ctx) }

func (p *place) release(ctx context.Context) error { return p.line.release(ctx, p.own) }

func (p *place) gone(err error) { p.own.lose(err) }

// Ahead counts those in etcd's queue. Who waits in memory has at least that many ahead.
func (p *place) Ahead(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	switch {
	case p.ticket != nil:
		return p.ticket.Ahead(ctx)
	case p.ahead != nil:
		return p.ahead(ctx)
	}
	return fairqueue.Entry{}, 0, false // not in etcd's line yet
}

// first is Ahead of those for whom only o is in the way: there is nobody ahead of it.
func (o *ownership) first(ctx context.Context) (owner fairqueue.Entry, ahead int, ok bool) {
	t := o.ticket
	answer, err := t.Session().Client().Get(ctx, t.Key(), clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != t.Revision() {
		return fairqueue.Entry{}, 0, false
	}
	owner = fairqueue.Entry{Key: t.Key(), Revision: t.Revision(), Value: answer.Kvs[0].Value}
	_ = json.Unmarshal(owner.Value, &owner.Owner) // the value says the rest
	return owner, 1, true
}
