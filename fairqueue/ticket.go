package fairqueue

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// Ticket is one place in a queue. Its methods are safe for concurrent use, but Wait,
// which is to be called once, and before Share, Set and PassTo.
type Ticket struct {
	queue   *Queue
	session *session.Session
	mode    Mode
	slot    int
	place   int // index among several that were asked for
	me      entry
	value   string // as created

	// unanswered counts the requests to create the key that were sent and may still
	// be under way: one may arrive when the ticket has long been given up.
	unanswered int
	epoch      *link.Epoch // in which they were sent

	// What the last answer said, for Wait only.
	verdict verdict
	nearest entry     // that blocks, if blocked
	seen    int64     // revision of the answer
	length  int64     // of the queue, at the last look or about
	quiet   int       // how often there was no news
	marking bool      // in etcd, that it owns, has been tried
	others  []*Ticket // of the same group: the loss of any is the loss of all
	permit  *permitState

	left   atomic.Bool
	marked atomic.Bool // by Share
	wrote  atomic.Pointer[writing]
}

// Key returns the ticket's key in etcd.
func (t *Ticket) Key() string { return t.me.key }

// Revision returns the ticket's create revision: its place in line, and its
// fencing token, since it rises strictly from one owner to the next.
func (t *Ticket) Revision() int64 { return t.me.revision }

// Mode returns with whom the ticket can own together.
func (t *Ticket) Mode() Mode { return t.mode }

// Session returns the session that the ticket is bound to.
func (t *Ticket) Session() *session.Session { return t.session }

// Granted reports whether Wait has nothing to wait for. It is for the time between
// joining and Wait, and makes no request.
func (t *Ticket) Granted() bool { return t.verdict == granted }

// Left reports whether the ticket has been given up, by Leave or because a call failed.
func (t *Ticket) Left() bool { return t.left.Load() }

// Guard returns a comparison that makes an etcd transaction take effect only if
// the ticket still exists at that moment.
func (t *Ticket) Guard() clientv3.Cmp {
	return createdAt(t.me.key, t.me.revision)
}

// createdAt is clientv3.Compare without its copy of the comparison, which costs more than the rest.
func createdAt(key string, revision int64) clientv3.Cmp {
	c := clientv3.CreateRevision(key)
	c.GetCompare().Result = etcdserverpb.Compare_EQUAL
	c.GetCompare().TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: revision}
	return c
}

// Guards returns the guard alone, as [Group.Guards] does those of several.
func (t *Ticket) Guards() []clientv3.Cmp { return []clientv3.Cmp{t.Guard()} }

// Leave gives the ticket up, granted or not: one round trip, one raft entry. Only
// the first call does anything; later ones return nil.
//
// If the ticket was gone already, the error wraps [session.ErrLost] (or
// [session.ErrClosed], if its session was closed first): what it protected may
// not have been protected to the end. If etcd does not answer before ctx ends, the
// error wraps ctx's and the session goes on removing the ticket in the background.
// Even if ctx is over, or ends at once, etcd gets a quarter of a second.
func (t *Ticket) Leave(ctx context.Context) error {
	return t.failed(leave(ctx, []*Ticket{t}))
}

// abandon gives the ticket up without waiting for that.
func (t *Ticket) abandon() {
	if !t.left.Swap(true) {
		t.discard()
	}
}

// discard leaves it to the session to remove the key.
func (t *Ticket) discard() {
	t.session.Link().Discard(t.me.key, t.me.revision, t.forget)
}

// forget is for a key that is known to be gone, or never to have been. Its name is free again, unless a
// request that creates it may still arrive.
func (t *Ticket) forget() {
	free := func() { t.session.Link().Free(string(t.queue.space), t.slot) }
	if t.unanswered > 0 {
		t.epoch.Doubt(t.me.key, free)
		return
	}
	free()
}
