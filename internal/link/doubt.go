package link

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// chunk is how many doubts a request is about: half of the operations that etcd allows by default.
	chunk = 64

	// Doubts that cannot be ended are looked at again after shortPause, later ones after up to longPause.
	shortPause = time.Second
	longPause  = 8 * time.Second

	// A session with spentLimit doubts that cannot be ended is Spent. With fullLimit it refuses further calls.
	spentLimit = 1024
	fullLimit  = 4 * spentLimit
)

// doubt is a name whose key may exist, or may yet be created.
type doubt struct {
	key  string
	free func()

	// lasting says that the user lacks the permission to end it. It does not count as abandoned, but as lasting.
	lasting bool
}

// Spent reports whether the session has so many doubts that cannot be ended that another one should take its place.
// They take memory until it ends. Safe for concurrent use.
func (l *Link) Spent() bool { return l.lasting.Load() >= spentLimit }

// Spending returns what a session is told that is [Link.Spent]: which keys the user would have to be allowed to write.
func (l *Link) Spending() error {
	folder, _ := l.deniedFolder.Load().(string)
	return fmt.Errorf("%d calls were given up whose requests may yet create keys, as the user must not write keys that begin with %q",
		l.lasting.Load(), folder)
}

// Doubt takes care of a key that a request may have created that was not answered, or may yet create. In
// the background the session removes the key if it is bound to the session's lease, and calls
// free, once, when the key can neither exist nor come into existence. Free must not block. After the end of the
// session it is not called any more.
func (e *Epoch) Doubt(key string, free func()) {
	l := e.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return // the keys go with the lease
	}
	l.count(1)
	l.use(-1)
	e.doubts = append(e.doubts, doubt{key: key, free: free})
	if e.resolving {
		e.wakeUp()
	} else {
		e.resolving = l.start(e.resolve)
	}
}

// wakeUp makes another attempt to end doubts begin soon.
func (e *Epoch) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // it will wake up anyway
	}
}

// take takes all doubts. Without any, resolving ends.
func (e *Epoch) take() (doubts []doubt) {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	doubts, e.doubts = e.doubts, nil
	e.resolving = len(doubts) > 0
	return doubts
}

func (e *Epoch) putBack(doubts []doubt) {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	e.doubts = append(doubts, e.doubts...)
}

// resolve works until there are no doubts or the session ends, in rounds: doubts that arise during a round wait for
// the next one. After a round that could not end all, the keys that have been created late are removed, which etcd
// allows without space, too.
func (e *Epoch) resolve(ctx context.Context) {
	pause := shortPause
	for doubts := e.take(); len(doubts) > 0; doubts = e.take() {
		left, err := e.end(ctx, doubts)
		if ctx.Err() != nil {
			return
		}
		e.report(left, err)
		if len(left) == 0 {
			pause = shortPause
			continue
		}
		e.look(ctx, left)
		pause = e.wait(ctx, pause)
		e.putBack(left)
	}
}

// report tells the link what an attempt has come to. While etcd refuses to begin an epoch, doubts
// count as abandoned, so their number is limited. Keys that are left because of a missing permission do not count:
// perhaps it will be granted.
func (e *Epoch) report(left []doubt, err error) {
	if err != nil {
		e.link.warn("removing keys of unanswered requests failed, trying again", "keys", len(left), "error", err)
	}
	if err != nil && !request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		e.link.refuse(e, err)
		return
	}
	for i := range left {
		e.setLasting(&left[i])
	}
	e.link.refuse(e, nil)
}

// setLasting counts d as lasting instead of abandoned.
func (e *Epoch) setLasting(d *doubt) {
	if !d.lasting {
		d.lasting = true
		e.link.countAbandoned(-1)
		e.link.deniedFolder.Store(e.key[:strings.LastIndex(e.key, "/")+1])
		e.link.lasting.Add(1)
	}
}

// ended frees the name of a doubt that has ended.
func (e *Epoch) ended(d doubt) {
	if d.lasting {
		e.link.lasting.Add(-1)
	} else {
		e.link.countAbandoned(-1)
	}
	e.link.setAside(-1)
	d.free()
}

// wait lasts for pause, or less if another doubt arises or a call waits, but about a second at least. It returns the
// next pause.
func (e *Epoch) wait(ctx context.Context, pause time.Duration) (next time.Duration) {
	if request.Sleep(ctx, ctx, request.Jitter(shortPause)) {
		select {
		case <-e.wake:
			return shortPause
		case <-time.After(request.Jitter(pause)):
		case <-ctx.Done():
		}
	}
	return min(2*pause, longPause)
}

// end begins an epoch, so that no request of an earlier one can take effect, and removes the keys that they have
// created. It returns the doubts that remain: all, if the epoch is denied.
func (e *Epoch) end(ctx context.Context, doubts []doubt) (left []doubt, err error) {
	if !e.Checked() {
		return doubts, nil
	}
	if err := e.begin(ctx); err != nil {
		if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
			e.denied.Store(true)
		}
		return doubts, err
	}
	return e.remove(ctx, doubts, e.revision.Load(), e.ended)
}

// look removes the keys of doubts that exist. It writes only if there are any. What fails is done at the next look.
func (e *Epoch) look(ctx context.Context, doubts []doubt) {
	for some := range slices.Chunk(doubts, chunk) {
		reads := make([]clientv3.Op, len(some))
		for i, d := range some {
			reads[i] = clientv3.OpGet(d.key)
		}
		answer, err := e.link.Read(ctx, reads...)
		if err != nil {
			if ctx.Err() == nil {
				e.link.warn("looking for keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
			}
			return
		}
		var late []doubt
		for i, part := range answer.Responses {
			if kvs := part.GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].Lease == int64(e.link.lease) {
				late = append(late, some[i])
			}
		}
		_, _ = e.remove(ctx, late, answer.Header.Revision+1, func(d doubt) {
			e.link.logger.Warn("removing a key that was created late", "key", d.key)
		})
	}
}

// remove deletes the keys of doubts that were created before revision, and calls done for each doubt. It goes one by
// one if etcd refuses several, so that a key that may not be touched any more does not keep the others. It returns the
// doubts whose keys it could not delete.
func (e *Epoch) remove(ctx context.Context, doubts []doubt, revision int64, done func(doubt)) (left []doubt, err error) {
	for some := range slices.Chunk(doubts, chunk) {
		failed := e.removeTogether(ctx, some, revision)
		switch {
		case failed == nil:
			for _, d := range some {
				done(d)
			}
		case len(some) > 1 && request.Refused(failed):
			for one := range slices.Chunk(some, 1) {
				if rest, refusal := e.remove(ctx, one, revision, done); refusal != nil {
					left, err = append(left, rest...), refusal
				}
			}
		default:
			left, err = append(left, some...), failed
		}
	}
	return left, err
}

// removeTogether deletes keys in one request. The name of a key may be in use again as soon as one attempt is
// answered. The revision excludes the new key from the other attempts.
func (e *Epoch) removeTogether(ctx context.Context, doubts []doubt, revision int64) error {
	l := e.link
	deletes := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		ours := clientv3.Compare(clientv3.LeaseValue(d.key), "=", l.lease)
		earlier := clientv3.Compare(clientv3.CreateRevision(d.key), "<", revision)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{ours, earlier}, []clientv3.Op{clientv3.OpDelete(d.key)}, nil)
	}
	return l.Call(ctx, func(ctx context.Context) error {
		_, err := l.client.Txn(ctx).Then(deletes...).Commit()
		return err
	})
}
