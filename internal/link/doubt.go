package link

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// chunk is how many doubts a request is about: half of the operations that etcd allows by default.
	chunk = 64

	firstLook = 250 * time.Millisecond
	longLook  = 10 * time.Second

	// refusedPause follows the first refusal of an epoch. Later ones are followed by longer pauses, up to longLook,
	// unless a call waits.
	refusedPause = time.Second
)

// doubt is a name whose key may exist, or may yet be created.
type doubt struct {
	key  string
	free func()

	since, looked time.Time // when it arose, and when it was looked at last
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts = append(e.doubts, doubt{key: key, free: free, since: time.Now()})
	e.arrivals++
	l.count(1)
	if !e.resolving {
		e.resolving = true
		l.spawn(e.resolve)
		return
	}
	wake(e.arrived)
}

// tryAgain ends the pause after a refusal, except its first second.
func (e *Epoch) tryAgain() { wake(e.again) }

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // the goroutine will wake up anyway
	}
}

// take takes all doubts, and returns how many of them are taken for the first time. Without any, resolving
// ends.
func (e *Epoch) take() (doubts []doubt, arrivals int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	doubts, arrivals = e.doubts, e.arrivals
	e.doubts, e.arrivals, e.resolving = nil, 0, len(doubts) > 0
	return doubts, arrivals
}

// resolve works until there are no doubts or the session ends, in rounds: doubts that arise during a round wait for
// the next one.
//
// While etcd refuses to begin an epoch, new doubts count as abandoned, so their number is limited. Keys that are left
// because of a missing permission do not count: perhaps it will be granted.
func (e *Epoch) resolve(ctx context.Context) {
	refusals := 0 // in a row
	for doubts, arrivals := e.take(); len(doubts) > 0; doubts, arrivals = e.take() {
		var err error
		if e.Checked() {
			doubts, err = e.end(ctx, doubts)
		}
		if ctx.Err() != nil {
			return
		}
		pause, counted := time.Duration(0), 0
		switch {
		case err != nil && !request.IsAnswer(err, rpctypes.ErrPermissionDenied):
			pause, counted = min(refusedPause<<min(refusals, 4), longLook), min(arrivals, len(doubts))
			refusals++
			e.link.refuse(&refusal{err, e, time.Now()})
		case refusals > 0:
			refusals = 0
			e.link.refuse(nil)
		}
		e.link.countAbandoned(counted - arrivals)
		if len(doubts) == 0 {
			continue
		}
		if err != nil {
			e.link.warn("removing keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
		}
		e.observe(ctx, doubts, counted, pause)
	}
}

// end begins an epoch, so that no request of an earlier one can take effect, and removes the keys that they have
// created. It returns the doubts that remain.
func (e *Epoch) end(ctx context.Context, doubts []doubt) (left []doubt, err error) {
	if err := e.begin(ctx); err != nil {
		if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
			e.denied.Store(true)
		}
		return doubts, err
	}
	revision := e.revision.Load()
	earlier := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "<", revision) }
	for some := range slices.Chunk(doubts, chunk) {
		kept, failed := e.removeAndFree(ctx, some, earlier)
		if len(kept) > 0 {
			left, err = append(left, kept...), failed
		}
	}
	return left, err
}

// removeAndFree removes the keys of doubts and frees them: one by one if etcd refuses, so that a key that may not be
// touched any more does not keep the others. It returns the doubts that remain.
func (e *Epoch) removeAndFree(ctx context.Context, doubts []doubt, created func(key string) clientv3.Cmp) (left []doubt, err error) {
	err = e.remove(ctx, doubts, created)
	switch {
	case err == nil:
		for _, d := range doubts {
			d.free()
		}
		return nil, nil
	case len(doubts) == 1 || !request.Refused(err):
		return doubts, err
	}
	for one := range slices.Chunk(doubts, 1) {
		kept, _ := e.removeAndFree(ctx, one, created)
		left = append(left, kept...)
	}
	return left, err
}

// remove deletes the keys that exist, in one request. The name of a key may be in use again as soon as one attempt is
// answered, so created has to be a condition that excludes the new key from the other attempts.
func (e *Epoch) remove(ctx context.Context, doubts []doubt, created func(key string) clientv3.Cmp) error {
	l := e.link
	deletes := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		ours := clientv3.Compare(clientv3.LeaseValue(d.key), "=", l.lease)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{ours, created(d.key)}, []clientv3.Op{clientv3.OpDelete(d.key)}, nil)
	}
	return l.Call(ctx, func(ctx context.Context) error {
		_, err := l.client.Txn(ctx).Then(deletes...).Commit()
		return err
	})
}

// observe returns doubts that cannot be ended, or not yet, to the epoch after a while. Meanwhile it
// removes keys that have been created late, which etcd allows without space, too: each is looked at after about a quarter of the time that the doubt
// has lasted, 10 s at most, together with others that are nearly due. Another doubt shortens the wait.
// After a refusal the wait is pause at least, and only a call that waits shortens it.
func (e *Epoch) observe(ctx context.Context, doubts []doubt, counted int, pause time.Duration) {
	now, wait := time.Now(), longLook
	var due []doubt
	for i, d := range doubts {
		interval := min(max(now.Sub(d.since)/4, firstLook), longLook)
		wait = min(wait, interval)
		if now.Sub(d.looked) >= interval/3 {
			due = append(due, d)
			doubts[i].looked = now
		}
	}
	for some := range slices.Chunk(due, chunk) {
		e.look(ctx, some)
	}
	least, sooner := firstLook, e.arrived
	if pause > 0 {
		least, sooner = refusedPause, e.again
	}
	if rest := max(wait, pause) - least; request.Sleep(ctx, ctx, request.Jitter(least)) && rest > 0 {
		timer := time.NewTimer(request.Jitter(rest))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-sooner:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts = append(doubts, e.doubts...)
	e.arrivals += counted
}

// look removes the keys of doubts that exist. It writes only if there are any. What fails is done at the next look.
func (e *Epoch) look(ctx context.Context, doubts []doubt) {
	reads := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		reads[i] = clientv3.OpGet(d.key, clientv3.WithKeysOnly())
	}
	limited, cancel := context.WithTimeout(ctx, request.LongAttempt)
	defer cancel()
	answer, err := e.link.Read(limited, reads...)
	if err != nil {
		if ctx.Err() == nil {
			e.link.warn("looking for keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
		}
		return
	}
	for _, part := range answer.Responses {
		for _, kv := range part.GetResponseRange().Kvs {
			this := func(key string) clientv3.Cmp {
				return clientv3.Compare(clientv3.CreateRevision(key), "=", kv.CreateRevision)
			}
			// One by one, so that a key that may not be touched any more does not keep the others.
			if e.remove(limited, []doubt{{key: string(kv.Key)}}, this) == nil {
				e.link.logger.Warn("removing a key that was created late", "key", string(kv.Key))
			}
		}
	}
}
