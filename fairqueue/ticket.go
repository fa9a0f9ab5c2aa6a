package fairqueue

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// Ticket is a place in line: a key in one queue, or one in each of several, all created at one
// revision. Its methods are safe for concurrent use, except Wait, which is to be called once and
// before Share, Upgrade, Set and PassTo, and except that calls of Share and Upgrade must not overlap.
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
func (t *Ticket) Guards() []clientv3.Cmp { return keysOf(t.parts).Guards() }

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

// Set replaces the value of the ticket's key, if it is still there: one round trip, one raft entry.
// Its place in line and its token stay. If the ticket is gone, the error wraps [ErrGone]; if the
// value has more than 1 MiB, it is [ErrTooLarge]. If ctx ends before etcd answers, the value may
// have been replaced or not, or may yet be, but no more once a later Set has returned nil.
// Concurrent calls take turns. It is meant for candidates: the value of an exclusive ticket must
// not begin with {"mark":, which is how an owner says that it shares.
func (t *Ticket) Set(ctx context.Context, value string) error {
	return t.failed(ctx, t.first().set(ctx, value))
}

func (p *part) set(ctx context.Context, value string) error {
	if err := checkValue(value); err != nil {
		return err
	}
	return p.key.Set(ctx, value)
}

// Share lets shared tickets own together with this exclusive one, which must have been
// granted, as if it were shared itself: those that stand right behind it are granted, with
// no gap in which another ticket could own. Upgrade undoes it. Costs and errors are those of
// Set. Tickets of other modes than [Exclusive] and [Upgradeable], or of several keys, panic.
func (t *Ticket) Share(ctx context.Context) error {
	p := t.exclusive()
	p.shares.Store(true) // or may be, if the answer is lost
	return t.Set(ctx, markedValue(p.key.Value))
}

// Leave gives the ticket up, granted or not: one round trip, one raft entry. Only
// the first call does anything; later ones return nil.
//
// If the ticket was gone already, or one of its keys was, the error wraps [session.ErrLost] (or [session.ErrClosed],
// if its session was closed first): another ticket may have owned meanwhile. If etcd does not answer before ctx ends,
// the error wraps ctx's and the session goes on removing the ticket in the background. Even if ctx is over, or ends
// at once, etcd gets a quarter of a second.
func (t *Ticket) Leave(ctx context.Context) error {
	return t.failed(ctx, keysOf(t.parts).Leave(ctx))
}

// ReleaseAfter gives the ticket up when d is over: until then others wait for it. Its keys move to a lease of their
// own. So they stay that long, and are removed then, even if this process ends first; the session only removes them
// in time. A value given by Set is not kept. Two round trips, two raft entries. Errors are as for Leave. If etcd does
// not answer, the ticket stays with the session for that time; if one of several keys is gone, the others are removed
// at once.
func (t *Ticket) ReleaseAfter(ctx context.Context, d time.Duration) error {
	p := t.first()
	shares := p.shares.Load()
	return t.failed(ctx, keysOf(t.parts).ReleaseAfter(ctx, d, func(k *keys.Key) string {
		switch {
		case shares: // it is the only key
			return markedValue(k.Value)
		case p.mode == Upgradeable:
			return unmarkedValue(k.Value)
		}
		return k.Value
	}))
}

// Abandon gives the ticket up in the background. Call it for a ticket of several keys that has lost one of them: its
// other keys would keep other tickets waiting.
func (t *Ticket) Abandon() { keysOf(t.parts).Abandon() }

func (t *Ticket) first() *part { return t.parts[0] }

// exclusive returns the only key of a ticket that may own alone.
func (t *Ticket) exclusive() *part {
	p := t.first()
	if p.mode != Exclusive && p.mode != Upgradeable || len(t.parts) > 1 {
		panic("fairqueue: only an exclusive ticket of one key can share")
	}
	return p
}

// part is one key of a ticket, in one queue.
type part struct {
	queue    *Queue
	session  *session.Session
	mode     Mode
	strategy strategy // of the mode
	place    int      // index among several that were asked for

	key    *keys.Key
	me     entry       // the key, once it has been created
	shares atomic.Bool // it lets shared tickets in, or may do so

	state
}

// state is what the last answer said. Only Wait, and the join before it, use it.
type state struct {
	verdict verdict
	nearest entry // that blocks, if blocked
	seen    int64 // revision of the answer
	length  int64 // of the queue, about
	marked  bool  // as an owner, or tried to
}

// newPart returns a part whose key is still to be created, with that value. The number is a weight or a priority.
func (q *Queue) newPart(s *session.Session, m Mode, value string, number int64) *part {
	name := func(n int) string { return q.space.key(m, s.Lease(), n, number) }
	key := keys.New(s, keys.Folder{Prefix: string(q.space), Epochs: q.epochs, Name: name}, value)
	return &part{queue: q, session: s, mode: m, strategy: m.strategy(), key: key}
}

func (p *part) link() *link.Link { return p.session.Link() }

// create creates the keys of parts, whose names have been claimed; see [keys.Keys.Create].
func create(ctx context.Context, parts []*part, more []clientv3.Op) (answer *clientv3.TxnResponse, seen int64, err error) {
	answer, seen, err = keysOf(parts).Create(ctx, more)
	if err != nil {
		return nil, 0, err // and the keys may still change: the session takes care of them
	}
	for _, p := range parts {
		p.me = entry{key: p.key.Name, revision: p.key.Revision}
	}
	return answer, seen, nil
}

func keysOf(parts []*part) keys.Keys {
	ks := make(keys.Keys, len(parts))
	for i, p := range parts {
		ks[i] = p.key
	}
	return ks
}
