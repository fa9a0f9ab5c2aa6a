package fairqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
	"github.com/etcdlock/locks/session"
)

// The size of a semaphore is in the name of a key, so that its change is a deletion, which
// a watch for deletions of tickets sees as well. The key has no lease: the size is
// agreed on until it is changed, whatever tickets come and go. No escaped name has an exclamation
// mark, so no queue below this one lies in the folder.
const sizeFolder = "!size"

// sizesKept is how many replaced sizes are remembered.
const sizesKept = 32

// agreement is the value of that key.
type agreement struct {
	Replaced []int64 `json:"replaced,omitempty"`
	Slots    bool    `json:"slots,omitempty"` // whether the permits have numbers
}

func (a agreement) value() string {
	b, err := json.Marshal(a)
	if err != nil {
		panic("fairqueue: " + err.Error()) // numbers
	}
	return string(b)
}

func (s space) sizes() space { return s + sizeFolder + "/" }

func (s space) sizeKey(size int64) string {
	return fmt.Sprintf("%s%d-%d", s.sizes(), size, size)
}

// sizeOf returns the size that a key records. Earlier versions wrote the largest size ever behind it.
func (s space) sizeOf(key string) (size int64, ok bool) {
	name, ok := strings.CutPrefix(key, string(s.sizes()))
	if !ok {
		return 0, false
	}
	first, second, _ := strings.Cut(name, "-")
	size, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, false
	}
	largest, err := strconv.ParseInt(second, 10, 64)
	return size, err == nil && 0 < size && size <= largest
}

// sizeIn finds the size among keys, and returns 0 if it is not there.
func (s space) sizeIn(keys []entry) int64 {
	for _, e := range keys {
		if size, ok := s.sizeOf(e.key); ok {
			return size
		}
	}
	return 0
}

// agree finds the size agreed on among the keys of the folder, in which other programs may put theirs; 0 if there is
// none. It returns an error unless size is that, or was once, and all users have slots or none has.
func (q *Queue) agree(kvs []*mvccpb.KeyValue, size int64) (agreed int64, err error) {
	for _, kv := range kvs {
		var ok bool
		if agreed, ok = q.space.sizeOf(string(kv.Key)); !ok {
			continue
		}
		var a agreement
		err := json.Unmarshal(kv.Value, &a)
		switch {
		case agreed != size && (err != nil || !slices.Contains(a.Replaced, size)):
			return agreed, &SizeError{Asked: size, Agreed: agreed}
		case err == nil && a.Slots != q.options.Slots:
			return agreed, &SizeError{Asked: size, Agreed: agreed, Slots: true}
		}
		return agreed, nil
	}
	return 0, nil
}

// Resize changes the size of the semaphore at the queue for all its users: one read and one transaction, both again
// after a concurrent Resize. If there are more permits then, waiters get them at once, in order. If there are fewer,
// none is taken away, but no more are granted until enough have been released. Waiters for more than there are fail.
// A call with a replaced size uses the new one; the last 32 of them are remembered. A waiter that is not the next in
// line may notice a change of the size, or a free permit after a reduction, only about 10 s later (Options.Recheck).
// A size that is not positive panics.
func (q *Queue) Resize(ctx context.Context, size int64) error {
	if size <= 0 {
		panic("etcdlock: the size of a semaphore must be positive")
	}
	_, err := withSession(ctx, q.source, func(s *session.Session) (*Ticket, error) {
		return nil, q.setSize(ctx, s, size, false)
	})
	return q.failed(ctx, err)
}

// setSize tries until the size is set; with ifNone, only if there is none.
func (q *Queue) setSize(ctx context.Context, s *session.Session, size int64, ifNone bool) (err error) {
	for done := false; !done && err == nil; {
		err = s.Link().Call(ctx, func(ctx context.Context) (err error) {
			done, err = q.resize(ctx, s.Client(), size, ifNone)
			return err
		})
	}
	return err
}

func (q *Queue) resize(ctx context.Context, client *clientv3.Client, size int64, ifNone bool) (done bool, err error) {
	folder := q.space.sizes().all()
	old, err := client.Get(ctx, folder.first, clientv3.WithRange(folder.end))
	if err != nil {
		return false, err
	}
	a := agreement{Slots: q.options.Slots}
	var deletes []clientv3.Op
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(folder.first), "<", old.Header.Revision+1).WithRange(folder.end),
	}
	for _, kv := range old.Kvs {
		replaced, ok := q.space.sizeOf(string(kv.Key))
		if !ok {
			continue // another program's
		}
		if ifNone || replaced == size {
			return true, nil
		}
		a.Slots = false
		_ = json.Unmarshal(kv.Value, &a) // what is unreadable has nothing to say
		a.Replaced = append(a.Replaced, replaced)
		// An attempt that arrives late must not set a size anew that has been forgotten.
		conditions = append(conditions, keys.CreatedAt(string(kv.Key), kv.CreateRevision))
		deletes = append(deletes, clientv3.OpDelete(string(kv.Key)))
	}
	a.Replaced = a.Replaced[max(0, len(a.Replaced)-sizesKept):]
	answer, err := client.Txn(ctx).
		If(conditions...).
		Then(append(deletes, clientv3.OpPut(q.space.sizeKey(size), a.value()))...).
		Commit()
	return err == nil && answer.Succeeded, err
}

// Forget removes the size of a semaphore that is not in use, the only key without a lease that
// it leaves in etcd; the next use sets it anew. If there are tickets in the queue, or in one
// below it, the error wraps [ErrBusy]. One transaction. A late request of the very first Resize
// or join may set the size once more.
func (q *Queue) Forget(ctx context.Context) error {
	client, err := q.client(ctx)
	var forgotten bool
	if err == nil {
		// Keys of epochs are nobody's tickets. They go with their sessions.
		all, epochs, sizes := q.space.all(), (q.space + epochFolder).all(), q.space.sizes().all()
		err = session.Retry(ctx, func(ctx context.Context) error {
			answer, err := client.Txn(ctx).
				If(span{all.first, epochs.first}.vacant(), span{epochs.end, sizes.first}.vacant(), span{sizes.end, all.end}.vacant()).
				Then(clientv3.OpDelete(sizes.first, clientv3.WithRange(sizes.end))).Commit()
			forgotten = err == nil && answer.Succeeded
			return err
		})
	}
	if err == nil && !forgotten {
		err = ErrBusy
	}
	return q.failed(ctx, err)
}

// Sizes follows the size of the semaphore at the queue: first as it is, then every change
// of it; 0 means that it has not been used yet. Like [Queue.Follow] it ends with ctx.
func (q *Queue) Sizes(ctx context.Context) iter.Seq2[int64, error] {
	sizes := q.in(q.space.sizes())
	return func(yield func(int64, error) bool) {
		last := int64(-1)
		for entries, err := range sizes.Follow(ctx) {
			size := int64(0)
			for _, e := range entries {
				if agreed, ok := q.space.sizeOf(e.Key); ok {
					size = agreed
				}
			}
			if (err != nil || size != last) && !yield(size, err) {
				return
			}
			if err == nil {
				last = size
			}
		}
	}
}
