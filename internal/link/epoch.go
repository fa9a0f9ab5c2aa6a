package link

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/request"
)

// Epoch ends the doubt about names whose keys an unanswered request may yet create. Every transaction
// that creates such a key of the session carries the condition that the epoch's own key is as it was when the
// attempt began. To end a doubt the session writes that key. From then on no
// earlier request can take effect, and one pass that removes what did take effect ends the doubt for good.
//
// The key is bound to the session's lease and is only written after a doubt: in good times it does not exist, and
// nothing is written. Its mod revision distinguishes the epochs, since it never has the same one twice.
//
// An epoch whose key the user may not read or write is denied. Then names in doubt are observed for as long as the
// session lasts. Safe for concurrent use.
type Epoch struct {
	link *Link
	key  string

	revision atomic.Int64 // mod revision of the key, 0 while it is not there
	denied   atomic.Bool

	// Guarded by the link's mu.
	doubts    []doubt
	resolving bool // a goroutine works on the doubts
	stuck     bool // its last attempt to end them was refused
}

// epochsLimit is how many epochs a session remembers.
const epochsLimit = 1024

// Epoch returns the session's epoch of the first of keys that is not denied, or of the last.
func (l *Link) Epoch(keys ...string) *Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	var e *Epoch
	for _, key := range keys {
		if e = l.epochs[key]; e == nil {
			if len(l.epochs) == epochsLimit {
				// Those in use go on, each with the requests that were made in it. Another of the same key learns
				// from etcd what it has to know.
				clear(l.epochs)
			}
			e = &Epoch{link: l, key: key}
			l.epochs[key] = e
		}
		if e.Checked() {
			break
		}
	}
	return e
}

// Checked reports whether transactions carry the epoch's condition: it is not denied.
func (e *Epoch) Checked() bool { return !e.denied.Load() }

// Condition is that no later epoch than the current one has begun. There is none if e is denied.
func (e *Epoch) Condition() coalesce.Epoch {
	if !e.Checked() {
		return coalesce.Epoch{}
	}
	return coalesce.Epoch{Key: e.key, Revision: e.revision.Load()}
}

// Now returns what distinguishes this epoch from others, for [Epoch.Moved].
func (e *Epoch) Now() int64 { return e.revision.Load() }

// Read reads the epoch's key, for [Epoch.Moved].
func (e *Epoch) Read() clientv3.Op { return clientv3.OpGet(e.key) }

// Moved takes in the answer to Read, which was given after a transaction had been refused that was sent at the
// epoch before or a later one. It reports whether another attempt makes sense, since the epoch is not
// the one before any more. It makes a request only if another user has deleted the key: that must not bring back
// the first epoch.
func (e *Epoch) Moved(ctx context.Context, before int64, answer *etcdserverpb.RangeResponse) (bool, error) {
	found := revisionOf(answer)
	if found == 0 && e.revision.Load() != 0 {
		if err := e.begin(ctx); err != nil {
			return false, err
		}
	}
	e.learn(found)
	return e.revision.Load() != before, nil
}

// Denies reports whether the epoch may be the reason why etcd denied permission for a transaction that was made while
// e was checked. Then e is denied from now on. One request, none if e is denied already.
func (e *Epoch) Denies(ctx context.Context) bool {
	if !e.Checked() {
		return true
	}
	_, err := e.link.Read(ctx, clientv3.OpGet(e.key, clientv3.WithKeysOnly()))
	if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		e.denied.Store(true)
	}
	return !e.Checked()
}

func revisionOf(answer *etcdserverpb.RangeResponse) int64 {
	if len(answer.Kvs) == 0 {
		return 0
	}
	return answer.Kvs[0].ModRevision
}

// learn takes note of the key's revision, which only rises.
func (e *Epoch) learn(revision int64) {
	for known := e.revision.Load(); revision > known && !e.revision.CompareAndSwap(known, revision); known = e.revision.Load() {
	}
}

// begin writes the key, so that no request sent before can take effect any more.
func (e *Epoch) begin(ctx context.Context) error {
	l, from := e.link, e.revision.Load()
	return l.Call(ctx, func(ctx context.Context) error {
		for {
			answer, err := l.client.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(e.key), "=", from)).
				Then(clientv3.OpPut(e.key, "", clientv3.WithLease(l.lease))).
				Else(e.Read()).Commit()
			if err != nil {
				return err
			}
			if answer.Succeeded {
				e.learn(answer.Header.Revision)
				return nil
			}
			if from = revisionOf(answer.Responses[0].GetResponseRange()); from != 0 {
				e.learn(from) // by an attempt that was not answered
				return nil
			}
		}
	})
}
