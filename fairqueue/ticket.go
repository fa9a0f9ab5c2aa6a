package fairqueue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Ticket is a place in line: a key in one queue, or one in each of several, all created at one
// revision. Its methods are safe for concurrent use, except Wait, which is to be called once and
// before Share, Set and PassTo.
type Ticket struct {
	// Slot is the number that Wait has given to a permit ([Options]), and -1 for other tickets.
	Slot int

	parts []*part
	// want is how many of the parts Wait waits for. It gives up the others.
	want int
}

// newTicket is for parts that are all wanted.
func newTicket(parts ...*part) *Ticket { return &Ticket{parts: parts, want: len(parts), Slot: -1} }

// Key returns the ticket's key in etcd; of several, the first.
func (t *Ticket) Key() string { return t.first().me.key }

// Revision returns the create revision of the ticket's keys: its place in line, and its fencing
// token, which rises strictly from one owner to the next. A permit with a slot has the token of the slot,
// and 0 before Wait has returned.
func (t *Ticket) Revision() int64 {
	if p := t.first(); p.mode != permit || !p.queue.options.Slots {
		return p.me.revision
	}
	return 0
}

// Session returns the session that the ticket is bound to.
func (t *Ticket) Session() *session.Session { return t.first().session }

// Guards returns one comparison for every key. In a transaction they hold only while the ticket exists.
func (t *Ticket) Guards() []clientv3.Cmp { return guardsOf(t.parts) }

// Granted reports whether Wait is going to return without waiting. It is for the time between
// joining and Wait, and makes no request.
func (t *Ticket) Granted() bool {
	return len(t.parts) == t.want && !slices.ContainsFunc(t.parts, func(p *part) bool { return p.verdict != granted })
}

// Chosen returns the indices of the places in which the ticket has keys, in ascending order.
func (t *Ticket) Chosen() []int {
	chosen := make([]int, len(t.parts))
	for i, p := range t.parts {
		chosen[i] = p.place
	}
	slices.Sort(chosen)
	return chosen
}

// Left reports whether the ticket has been given up, by Leave or because a call failed.
func (t *Ticket) Left() bool { return t.first().left.Load() }

// Leave gives the ticket up, granted or not: one round trip, one raft entry. Only
// the first call does anything; later ones return nil.
//
// If the ticket was gone already, or one of its keys was, the error wraps [session.ErrLost] (or
// [session.ErrClosed], if its session was closed first): what it protected may
// not have been protected to the end. If etcd does not answer before ctx ends, the
// error wraps ctx's and the session goes on removing the ticket in the background.
// Even if ctx is over, or ends at once, etcd gets a quarter of a second.
func (t *Ticket) Leave(ctx context.Context) error {
	return t.failed(leave(ctx, t.parts))
}

// Abandon gives the ticket up in the background. A ticket of several keys that has lost one of them is
// of no use, and would keep others waiting.
func (t *Ticket) Abandon() { abandon(t.parts) }

func (t *Ticket) first() *part { return t.parts[0] }
