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
	firstLook = 250 * time.Millisecond
	longLook  = 10 * time.Second

	// refusedPause follows the first refusal of an epoch. Later ones are followed by more, up to longLook.
	refusedPause = time.Second
)

// doubt is a name whose key may exist, or may yet be created.
type doubt struct {
	key  string
	free func()

	since, looked time.Time // when it arose, and when it was looked at last
}

// Doubt takes care of a key that may have been created by a request that was not answered, or may yet be. In
// the background the session removes it if it is bound to the session's lease, and calls
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
	if !e.ending {
		e.ending = true
		l.spawn(e.end)
		return
	}
	select {
	case e.arrived <- struct{}{}:
	default: // it has been told already
	}
}

// take takes all doubts, and tells how many of them have not been taken before. Without any the goroutine that asks is
// signed off.
func (e *Epoch) take() (doubts []doubt, arrivals int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	doubts, arrivals = e.doubts, e.arrivals
	e.doubts, e.arrivals, e.ending = nil, 0, len(doubts) > 0
	return doubts, arrivals
}

// end ends doubts until there are none or the session ends. They are taken together, one round after the other: if a
// request of a round is not answered, doubts that arise meanwhile wait for its next attempt, 3 s at first.
//
// While etcd refuses to begin an epoch, new doubts count as unsettled, so their number is limited. Keys that are left because of a
// missing permission do not count: somebody may have to grant it first.
func (e *Epoch) end(ctx context.Context) {
	refusals := 0 // in a row
	for doubts, arrivals := e.take(); len(doubts) > 0; doubts, arrivals = e.take() {
		var err error
		if e.Checked() {
			doubts, err = e.settle(ctx, doubts)
		}
		if ctx.Err() != nil {
			return
		}
		pause, unsettled := firstLook, 0
		switch {
		case err != nil && !request.IsAnswer(err, rpctypes.ErrPermissionDenied):
			pause, unsettled = min(refusedPause<<min(refusals, 4), longLook), min(arrivals, len(doubts))
			refusals++
			e.link.refuse(err)
		case refusals > 0:
			refusals = 0
			e.link.refuse(nil)
		}
		e.link.settled(arrivals - unsettled)
		if len(doubts) == 0 {
			continue
		}
		if err != nil {
			e.link.warn("removing keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
		}
		e.observe(ctx, doubts, unsettled, pause)
	}
}

// settle begins an epoch and removes what the earlier ones have created.
func (e *Epoch) settle(ctx context.Context, doubts []doubt) (left []doubt, err error) {
	if err := e.begin(ctx); err != nil {
		if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
			e.denied.Store(true)
		}
		return doubts, err
	}
	revision := e.revision.Load()
	earlier := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "<", revision) }
	for some := range slices.Chunk(doubts, batchLimit) {
		failed := e.remove(ctx, some, earlier)
		if request.Refused(failed) && len(some) > 1 {
			// One by one, so that a key that may not be touched any more does not keep the others.
			for one := range slices.Chunk(some, 1) {
				left, err = e.free(one, e.remove(ctx, one, earlier), left, err)
			}
		} else {
			left, err = e.free(some, failed, left, err)
		}
	}
	return left, err
}

// free frees the doubts that were removed, and otherwise adds them to those that are left.
func (e *Epoch) free(doubts []doubt, failed error, left []doubt, err error) ([]doubt, error) {
	if failed != nil {
		return append(left, doubts...), failed
	}
	for _, d := range doubts {
		d.free()
	}
	return left, err
}

// remove deletes the keys that exist, in one request. A key may be created anew as soon as one attempt is
// answered, so created has to be a condition that excludes it from the others.
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

// observe looks at doubts that cannot be ended, or not yet, and returns them to the epoch after a while. A look is a read; only
// what is found is deleted. Each doubt is looked at after about a quarter of the time that it has lasted, 10 s at most, together
// with others that are nearly due. Another doubt shortens the time, but not to less than pause.
func (e *Epoch) observe(ctx context.Context, doubts []doubt, unsettled int, pause time.Duration) {
	now, next := time.Now(), longLook
	var due []doubt
	for i, d := range doubts {
		interval := min(max(now.Sub(d.since)/4, firstLook), longLook)
		next = min(next, interval)
		if now.Sub(d.looked) >= interval/3 {
			due = append(due, d)
			doubts[i].looked = now
		}
	}
	for some := range slices.Chunk(due, batchLimit) {
		e.look(ctx, some)
	}
	if request.Sleep(ctx, ctx, request.Jitter(pause)) && next > pause {
		timer := time.NewTimer(request.Jitter(next - pause))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-e.arrived:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts = append(doubts, e.doubts...)
	e.arrivals += unsettled
}

// look removes those keys that exist. What fails is looked at again later.
func (e *Epoch) look(ctx context.Context, doubts []doubt) {
	reads := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		reads[i] = clientv3.OpGet(d.key, clientv3.WithKeysOnly())
	}
	found := make(map[string]int64) // create revisions
	ctx, cancel := context.WithTimeout(ctx, request.LongAttempt)
	defer cancel()
	err := e.link.Call(ctx, func(ctx context.Context) error {
		answer, err := e.link.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return err
		}
		clear(found)
		for _, part := range answer.Responses {
			for _, kv := range part.GetResponseRange().Kvs {
				found[string(kv.Key)] = kv.CreateRevision
			}
		}
		return nil
	})
	this := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", found[key]) }
	for key := range found {
		// One by one, so that a key that may not be touched any more does not keep the others.
		if e.remove(ctx, []doubt{{key: key}}, this) == nil {
			e.link.logger.Warn("removing a key that was created late", "key", key)
		}
	}
	if err != nil && ctx.Err() == nil {
		e.link.warn("looking for keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
	}
}
