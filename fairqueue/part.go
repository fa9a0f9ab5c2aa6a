package fairqueue

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
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

	key    *keys.Key
	me     entry       // the key, once it has been created
	shares atomic.Bool // Share has been called

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

// newPart returns a part whose key is still to be created. The number is a weight or a priority.
func (q *Queue) newPart(s *session.Session, m Mode, value string, number int64) *part {
	if m != Candidate {
		value = valueAt(q.owner, time.Now())
	}
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
