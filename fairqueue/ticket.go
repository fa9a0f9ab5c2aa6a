package fairqueue

import (
	"context"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Ticket is one place in a queue. Key, Revision, Guard, Session, Lost and Leave
// are safe for concurrent use; Wait is to be called once.
type Ticket struct {
	queue   *Queue
	session *session.Session
	mode    Mode
	slot    int
	me      entry

	// unanswered counts the requests to create the key that were sent and may still
	// be under way: one may arrive when the ticket has long been given up.
	unanswered int

	// What the last answer said, for Wait only.
	verdict verdict
	nearest entry // that blocks, if blocked
	seen    int64 // revision of the answer

	left atomic.Bool
}

// Key returns the ticket's key in etcd.
func (t *Ticket) Key() string { return t.me.key }

// Revision returns the ticket's create revision: its place in line, and its
// fencing token, since it rises strictly from one owner to the next.
func (t *Ticket) Revision() int64 { return t.me.revision }

// Session returns the session that the ticket is bound to.
func (t *Ticket) Session() *session.Session { return t.session }

// Guard returns a comparison that makes an etcd transaction take effect only if
// the ticket still exists at that moment.
func (t *Ticket) Guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.me.key), "=", t.me.revision)
}

// Leave gives the ticket up, granted or not: one round trip, one raft entry. Only
// the first call does anything; later ones return nil.
//
// If the ticket was gone already, the error wraps [session.ErrLost] (or
// [session.ErrClosed], if its session was closed first): what it protected may
// not have been protected to the end. If etcd does not answer before ctx ends, the
// error wraps ctx's and the session goes on removing the ticket in the background.
// Even if ctx is over, or ends at once, etcd gets a quarter of a second.
func (t *Ticket) Leave(ctx context.Context) error {
	if t.left.Swap(true) {
		return nil
	}
	// A context that hangs on the hold ends with it, which may be at this moment.
	ctx, cancel := session.Grace(ctx)
	defer cancel()
	var found, doubtful bool
	err := t.session.Call(ctx, func(ctx context.Context) error {
		answer, err := t.session.Client().Txn(ctx).If(t.Guard()).Then(clientv3.OpDelete(t.me.key)).Commit()
		if err != nil {
			doubtful = doubtful || session.Doubtful(err)
			return err
		}
		found = answer.Succeeded
		return nil
	})
	if err != nil {
		t.discard()
		return fmt.Errorf("ticket %s: %w", t.me.key, err)
	}
	t.forget()
	if !found && !doubtful {
		return fmt.Errorf("ticket %s: %w", t.me.key, errGone)
	}
	return nil
}

// abandon gives the ticket up without waiting for that.
func (t *Ticket) abandon() {
	if !t.left.Swap(true) {
		t.discard()
	}
}

// discard leaves it to the session to remove the key.
func (t *Ticket) discard() {
	if t.unanswered > 0 {
		t.session.Discard(t.me.key, 0, nil)
		return
	}
	t.session.Discard(t.me.key, t.me.revision, t.forget)
}

// forget is for a key that is known to be gone, or never to have been. If a request
// that creates it may still arrive, its name is watched over rather than used again.
func (t *Ticket) forget() {
	if t.unanswered > 0 {
		t.session.Discard(t.me.key, 0, nil)
		return
	}
	t.session.Free(string(t.queue.space), t.slot)
}
