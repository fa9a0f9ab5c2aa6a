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
	longPause  = 10 * time.Second

	// A session with spentLimit doubts that cannot be ended is Spent. With fullLimit it refuses further calls.
	spentLimit = 512
	fullLimit  = 4 * spentLimit
)

// doubt is a name whose key may exist, or may yet be created.
type doubt struct {
	key     string
	free    func()
	lasting bool // etcd refuses to end it: it counts as lasting instead of abandoned
}

// Spent reports whether the session has so many doubts that cannot be ended that another one should take its place.
// They take memory until it ends. Safe for concurrent use.
func (l *Link) Spent() bool { return l.lasting.Load() >= spentLimit }

// Spending returns why a session is [Link.Spent].
func (l *Link) Spending() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("%d calls were given up whose requests may yet create keys: %w", l.lasting.Load(), l.refusal)
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
	l.use(-1)
	d := doubt{key: key, free: free}
	l.count(1)
	if e.stuck {
		l.setLasting(&d)
	}
	if e.doubts = append(e.doubts, d); !e.resolving {
		e.resolving = l.Start(e.resolve)
	}
}

// setLasting counts d as lasting. The caller has locked mu.
func (l *Link) setLasting(d *doubt) {
	if !d.lasting {
		d.lasting = true
		l.count(-1)
		l.lasting.Add(1)
	}
}

// ended frees the name of a doubt that has ended.
func (e *Epoch) ended(d doubt) {
	l := e.link
	l.mu.Lock()
	if d.lasting {
		l.lasting.Add(-1)
	} else {
		l.count(-1)
	}
	l.use(1)
	l.mu.Unlock()
	d.free()
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
		request.Sleep(ctx, ctx, request.Jitter(pause))
		pause = min(2*pause, longPause)
		e.putBack(left)
	}
}

// report records what an attempt has come to. While etcd refuses to end doubts, they do not count as abandoned:
// calls need not wait for what may take hours.
func (e *Epoch) report(left []doubt, err error) {
	l := e.link
	l.mu.Lock()
	news := err != nil && !e.stuck
	if e.stuck = err != nil; e.stuck {
		l.refusal = err
	}
	for i := range left {
		l.setLasting(&left[i])
	}
	l.mu.Unlock()
	if news {
		l.warn("removing keys of unanswered requests failed, trying again", "keys", len(left), "error", err)
	}
}

// end begins an epoch, so that no request of an earlier one can take effect, and removes the keys that they have
// created. It returns the doubts that remain: all, if etcd refuses to begin it.
func (e *Epoch) end(ctx context.Context, doubts []doubt) (left []doubt, err error) {
	if e.Checked() {
		switch err := e.begin(ctx); {
		case err == nil:
			return e.remove(ctx, doubts, e.revision.Load(), e.ended)
		case !request.IsAnswer(err, rpctypes.ErrPermissionDenied):
			return doubts, err
		}
		e.denied.Store(true)
	}
	return doubts, fmt.Errorf("the user must not write keys that begin with %q", e.key[:strings.LastIndex(e.key, "/")+1])
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
