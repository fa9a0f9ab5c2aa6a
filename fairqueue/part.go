package fairqueue

import (
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// part is one key of a ticket, in one queue.
type part struct {
	queue    *Queue
	session  *session.Session
	mode     Mode
	strategy strategy // of the mode
	place    int      // index among several that were asked for

	name   int   // number of the key among those of the session
	number int64 // in the key: a weight or a priority
	me     entry
	value  string // as created

	// unanswered counts the requests to create the key that were sent and may still
	// be in flight: one may arrive when the ticket has long been given up.
	unanswered int
	epoch      *link.Epoch // in which they were sent

	state
	left   atomic.Bool
	shares atomic.Bool // Share has been called

	turn    chan struct{} // full while a call writes the value, which may use written
	written int64         // revision of the last write, as far as known
}

// state is what the last answer said. Only Wait, and the join before it, use it.
type state struct {
	verdict verdict
	nearest entry // that blocks, if blocked
	seen    int64 // revision of the answer
	length  int64 // of the queue, about
	marked  bool  // as an owner, or tried to
}

func (q *Queue) newPart(s *session.Session, m Mode, value string, number int64) *part {
	if m != Candidate {
		value = valueAt(q.owner, time.Now())
	}
	return &part{queue: q, session: s, mode: m, strategy: m.strategy(), number: number, value: value, turn: make(chan struct{}, 1)}
}

// claim reserves names for the keys of parts. Whether they become free again is up to create.
func claim(parts []*part) {
	for _, p := range parts {
		p.name, p.unanswered = p.link().Claim(string(p.queue.space)), 0
		p.me = entry{key: p.queue.space.key(p.mode, p.session.Lease(), p.name, p.number)}
	}
}

func (p *part) link() *link.Link { return p.session.Link() }

// guard holds while the key exists that the ticket has created.
func (p *part) guard() clientv3.Cmp { return createdAt(p.me.key, p.me.revision) }

func guardsOf(parts []*part) []clientv3.Cmp {
	guards := make([]clientv3.Cmp, len(parts))
	for i, p := range parts {
		guards[i] = p.guard()
	}
	return guards
}

// createdAt is clientv3.Compare without its copy of the comparison, which costs more than the rest.
func createdAt(key string, revision int64) clientv3.Cmp {
	c := clientv3.CreateRevision(key)
	c.GetCompare().Result = etcdserverpb.Compare_EQUAL
	c.GetCompare().TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: revision}
	return c
}

// readsOf reads the keys of parts. Not the keys only: since 3.7 etcd answers that without the lease.
func readsOf(parts []*part) []clientv3.Op {
	reads := make([]clientv3.Op, len(parts))
	for i, p := range parts {
		reads[i] = clientv3.OpGet(p.me.key)
	}
	return reads
}

// abandon gives the part up in the background.
func (p *part) abandon() {
	if !p.left.Swap(true) {
		p.discard()
	}
}

func abandon(parts []*part) {
	for _, p := range parts {
		p.abandon()
	}
}

// discard leaves it to the session to remove the key.
func (p *part) discard() {
	p.link().Discard(p.me.key, p.me.revision, p.forget)
}

// forget is for a key that is known not to exist. Its name is free again, unless a
// request that creates it may still arrive.
func (p *part) forget() {
	name := p.name // another claim may change it before the doubt ends
	free := func() { p.link().Free(string(p.queue.space), name) }
	if p.unanswered > 0 {
		p.epoch.Doubt(p.me.key, free)
		return
	}
	free()
}

func forget(parts []*part) {
	for _, p := range parts {
		p.forget()
	}
}
