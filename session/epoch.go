package session

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Epoch ends the doubt about names that an unanswered request may yet create. Every transaction
// that creates such a key of the session carries the condition that the epoch's own key is as it was when the
// attempt began. To end a doubt the session writes that key. From then on no
// earlier request can take effect, and one pass that removes what did take effect ends the doubt for good.
//
// The key is bound to the session's lease and is only written after a doubt: in good times it does not exist, and
// nothing is written. Its mod revision tells the epochs apart, since it never has the same one twice.
//
// An epoch whose key the user may not read or write is denied. Then names in doubt are observed for as long as the
// session lasts. Safe for concurrent use.
type Epoch struct {
	session *Session
	key     string

	revision atomic.Int64 // mod revision of the key, 0 while it is not there
	denied   atomic.Bool

	mu       sync.Mutex
	doubts   []doubt
	arrivals int           // of doubts that have not been taken; they count as unsettled
	ending   bool          // a goroutine is at work on doubts
	arrived  chan struct{} // tells that goroutine of another doubt
}

// doubt is a name whose key may exist, or may yet be created.
type doubt struct {
	key  string
	free func()

	since, next time.Time // for those that are observed
}

const (
	// epochsLimit is how many epochs a session remembers.
	epochsLimit = 1024

	firstLook = 250 * time.Millisecond
	longLook  = 10 * time.Second
)

// Epoch returns the session's epoch of the first of keys that is not denied, or of the last.
func (s *Session) Epoch(keys ...string) *Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e *Epoch
	for _, key := range keys {
		if e = s.epochs[key]; e == nil {
			if len(s.epochs) == epochsLimit {
				// Those in use go on, each with the requests that were made in it. Another of the same key learns
				// from etcd what it has to know.
				clear(s.epochs)
			}
			e = &Epoch{session: s, key: key, arrived: make(chan struct{}, 1)}
			s.epochs[key] = e
		}
		if !e.denied.Load() {
			break
		}
	}
	return e
}

// Checked reports whether transactions carry the epoch's condition: it is not denied.
func (e *Epoch) Checked() bool { return !e.denied.Load() }

// moment is an epoch at one revision of its key. The zero value stands for no condition.
type moment struct {
	epoch    *Epoch
	revision int64
}

func (e *Epoch) moment() moment {
	if e == nil || !e.Checked() {
		return moment{}
	}
	return moment{e, e.revision.Load()}
}

// condition is that no later epoch has begun.
func (m moment) condition() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(m.epoch.key), "=", m.revision)
}

// Now returns what tells this epoch from others, for [Epoch.Moved].
func (e *Epoch) Now() int64 { return e.revision.Load() }

// Read reads the epoch's key, for [Epoch.Moved].
func (e *Epoch) Read() clientv3.Op { return clientv3.OpGet(e.key) }

// Moved tells e the answer to Read, which was given after a transaction had been refused that was sent at the
// epoch before or a later one. It reports whether another attempt makes sense, since the epoch is not
// the one before any more. It makes a request only if somebody else has deleted the key: that must not bring back
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
	err := e.session.Call(ctx, func(ctx context.Context) error {
		_, err := e.session.client.Get(ctx, e.key, clientv3.WithKeysOnly())
		return err
	})
	if IsAnswer(err, rpctypes.ErrPermissionDenied) {
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

// Doubt takes care of a key that may have been created by a request that was not answered, or may yet be. In
// the background the session removes it if it is bound to the session's lease, and calls
// free, once, when the key can neither exist nor come into existence. Free must not block. After the end of the
// session it is not called any more.
func (e *Epoch) Doubt(key string, free func()) {
	s := e.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return // the keys go with the lease
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts = append(e.doubts, doubt{key: key, free: free, since: now, next: now})
	e.arrivals++
	s.count(1)
	if !e.ending {
		e.ending = true
		s.spawn(e.end)
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

// end ends doubts until there are none or the session ends. Those that cannot be ended at the first try count as
// unsettled no longer: somebody may have to grant a permission first.
func (e *Epoch) end(ctx context.Context) {
	for doubts, arrivals := e.take(); len(doubts) > 0; doubts, arrivals = e.take() {
		var err error
		if e.Checked() {
			doubts, err = e.settle(ctx, doubts)
		}
		e.session.settled(arrivals)
		if len(doubts) == 0 {
			continue
		}
		if err != nil && ctx.Err() == nil {
			e.session.logger.Warn("removing keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
		}
		e.observe(ctx, doubts)
		if ctx.Err() != nil {
			return
		}
	}
}

// settle begins an epoch and removes what the earlier ones have created.
func (e *Epoch) settle(ctx context.Context, doubts []doubt) (left []doubt, err error) {
	if err := e.begin(ctx); err != nil {
		if IsAnswer(err, rpctypes.ErrPermissionDenied) {
			e.denied.Store(true)
		}
		return doubts, err
	}
	revision := e.revision.Load()
	earlier := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "<", revision) }
	for some := range slices.Chunk(doubts, batchLimit) {
		failed := e.remove(ctx, some, earlier)
		if refused(failed) && len(some) > 1 {
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

// begin writes the key, so that no request sent before can take effect any more.
func (e *Epoch) begin(ctx context.Context) error {
	s, from := e.session, e.revision.Load()
	return s.Call(ctx, func(ctx context.Context) error {
		for {
			answer, err := s.client.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(e.key), "=", from)).
				Then(clientv3.OpPut(e.key, "", clientv3.WithLease(s.lease))).
				Else(clientv3.OpGet(e.key)).Commit()
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

// remove deletes the keys that exist, in one request. A key may be created anew as soon as one attempt is
// answered, so created has to be a condition that excludes it from the others.
func (e *Epoch) remove(ctx context.Context, doubts []doubt, created func(key string) clientv3.Cmp) error {
	s := e.session
	deletes := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		ours := clientv3.Compare(clientv3.LeaseValue(d.key), "=", s.lease)
		deletes[i] = clientv3.OpTxn([]clientv3.Cmp{ours, created(d.key)}, []clientv3.Op{clientv3.OpDelete(d.key)}, nil)
	}
	return s.Call(ctx, func(ctx context.Context) error {
		_, err := s.client.Txn(ctx).Then(deletes...).Commit()
		return err
	})
}

// observe looks at doubts that cannot be ended, or not yet, until another one arrives or etcd may have changed its mind: after
// about a quarter of the time that each has lasted, 10 s at most. A look is a read; only what is found is deleted.
func (e *Epoch) observe(ctx context.Context, doubts []doubt) {
	now := time.Now()
	next := now.Add(longLook)
	var due []doubt
	for i, d := range doubts {
		if !d.next.After(now) {
			due = append(due, d)
			pause := min(max(now.Sub(d.since)/4, firstLook), longLook)
			doubts[i].next = now.Add(jitter(pause))
		}
		if doubts[i].next.Before(next) {
			next = doubts[i].next
		}
	}
	for some := range slices.Chunk(due, batchLimit) {
		e.look(ctx, some)
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.arrived:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts = append(doubts, e.doubts...)
}

// look removes those keys that exist. What fails is looked at again later.
func (e *Epoch) look(ctx context.Context, doubts []doubt) {
	reads := make([]clientv3.Op, len(doubts))
	for i, d := range doubts {
		reads[i] = clientv3.OpGet(d.key, clientv3.WithKeysOnly())
	}
	found := make(map[string]int64) // create revisions
	ctx, cancel := context.WithTimeout(ctx, longAttempt)
	defer cancel()
	err := e.session.Call(ctx, func(ctx context.Context) error {
		answer, err := e.session.client.Txn(ctx).Then(reads...).Commit()
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
			e.session.logger.Warn("removing a key that was created late", "key", key)
		}
	}
	if err != nil && ctx.Err() == nil {
		e.session.logger.Warn("looking for keys of unanswered requests failed, trying again", "keys", len(doubts), "error", err)
	}
}
