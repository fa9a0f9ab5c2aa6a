package fairqueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// longQueue is how many tickets make a look, which reads all of them, dearer than a put. Names of
// those that have gone make it dear as well, until a compaction, so an owner that was told of a
// long queue tells its successor too, until there are no more than a join tells of.
const longQueue = 512

const markLimit = time.Second // for what is only to spare the successor something

// ownerMark begins the value of an exclusive ticket that has owned in a long queue: about how many
// keys there were in it, and the ticket's revision, since a value may be copied.
const ownerMark = `{"mark":"owner %d at %d",`

// announce marks a granted ticket in a long queue, so that its successor need not look at all of it:
// when t goes, nothing else was ahead. If that fails the successor looks. The error is ErrGone.
func (t *Ticket) announce(ctx context.Context) error {
	if t.marking || t.mode != Exclusive || t.length < longQueue {
		return nil
	}
	if there, _, err := t.mark(ctx); err == nil && !there {
		return ErrGone
	}
	return nil
}

// mark writes that t owns, and tells whether it was there when that was written.
func (t *Ticket) mark(ctx context.Context) (there bool, at int64, err error) {
	t.marking = true
	ctx, cancel := context.WithTimeout(ctx, markLimit)
	defer cancel()
	value := fmt.Sprintf(ownerMark, t.length, t.me.revision) + strings.TrimPrefix(t.value, "{")
	put := clientv3.OpPut(t.me.key, value, clientv3.WithLease(t.session.Lease()))
	// Only on the value that it was created with: if this comes late, Share or Linger have said more.
	created := clientv3.Compare(clientv3.Version(t.me.key), "=", 1)
	err = t.session.Link().Call(ctx, func(ctx context.Context) error {
		answer, err := t.session.Client().Txn(ctx).If(t.Guard()).
			Then(clientv3.OpTxn([]clientv3.Cmp{created}, []clientv3.Op{put}, nil)).Commit()
		if err == nil {
			there, at = answer.Succeeded, answer.Header.Revision
		}
		if there && answer.Responses[0].GetResponseTxn().Succeeded {
			t.writing().last = at
		}
		return err
	})
	return there, at, err
}

// announced returns the length in the mark of an owner that e tells the end of, or 0. The name
// has to be one of ours: other values are for others to choose.
func (s space) announced(owner entry, e *clientv3.Event) (length int64) {
	_, _, ours := s.parts(owner.key)
	if !ours || owner.key[len(s)] != byte(Exclusive) || e.PrevKv == nil || e.PrevKv.CreateRevision != owner.revision {
		return 0
	}
	var at int64
	if _, err := fmt.Sscanf(string(e.PrevKv.Value), ownerMark, &length, &at); err != nil || at != owner.revision {
		return 0
	}
	return length
}

// succeed is look for one whose predecessor has owned: since nothing was ahead of that, only
// whether its own ticket is there is left to ask. If the queue is still long, it is marked in the same
// request.
func (t *Ticket) succeed(ctx context.Context, n news) (err error) {
	t.length = n.announced - 1
	var there bool
	var at int64
	if t.mode == Exclusive && t.length > joinLimit {
		there, at, err = t.mark(ctx)
	}
	if !t.marking || err != nil {
		there, at, err = t.present(ctx, t.me, n.revision)
	}
	switch {
	case err != nil:
		return err
	case at < n.revision:
		return t.look(ctx, n.revision)
	}
	t.seen = at
	if t.verdict = gone; there {
		t.verdict = granted
	}
	return nil
}
