package session

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// sweepBatch stays below etcd's limit of 128 operations in a transaction.
	sweepBatch = 64

	firstLook = 250 * time.Millisecond
	longLook  = 10 * time.Second
)

// leftover is a key that may exist although nobody wants it any more.
type leftover struct {
	key      string
	revision int64  // 0: whatever stands there with the session's lease
	gone     func() // may be nil

	since   time.Time // when it was handed over
	next    time.Time // when to look
	fails   int
	removed bool
}

// Discard removes key in the background, trying until that is confirmed or the
// session is over.
//
// With a revision it deletes the key if its create revision is that one, then
// calls gone, if not nil, once, from the background goroutine; gone must not
// block. After the end of the session it is not called any more.
//
// With revision 0 a request that creates the key may still be under way (it was
// sent, and no answer came). Then anything at the key that is bound to the
// session's lease is removed, and looked for again after pauses that grow with
// the time since (about a quarter of it, from 250 ms to 10 s) for as long
// as the session lasts; gone is never called. A look is a read; only what is
// found is deleted.
//
// Discard does not block. It is the one place where keys are cleaned up behind
// their user's back.
func (s *Session) Discard(key string, revision int64, gone func()) {
	s.DiscardAfter(0, key, revision, gone)
}

// DiscardAfter is Discard, not before d has passed. If the session ends earlier, the
// key stays for as long as the lease that it is bound to.
func (s *Session) DiscardAfter(d time.Duration, key string, revision int64, gone func()) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return // the keys go with the lease
	}
	s.leftover = append(s.leftover, &leftover{key: key, revision: revision, gone: gone, since: now, next: now.Add(d)})
	if !s.sweeping {
		s.sweeping = true
		s.running.Go(s.sweep)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // it has been told already
	}
}

// sweep works on the leftovers until there are none or the session ends.
func (s *Session) sweep() {
	for {
		due, wait := s.dueLeftovers()
		if due == nil && wait == 0 {
			return
		}
		if due != nil {
			s.remove(due)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// dueLeftovers returns those to look at now, or how long to wait for the next.
// If there is nothing to wait for, the sweeper is signed off.
func (s *Session) dueLeftovers() (due []*leftover, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.leftover) == 0 {
		s.leftover, s.sweeping = nil, false
		return nil, 0
	}
	now := time.Now()
	next := s.leftover[0].next
	for _, l := range s.leftover {
		if !l.next.After(now) && len(due) < sweepBatch {
			due = append(due, l)
		}
		if l.next.Before(next) {
			next = l.next
		}
	}
	return due, max(next.Sub(now), 1)
}

// remove makes one attempt at all of due, together; if etcd refuses that, one by
// one, so that a key that may not be touched any more does not keep the others.
func (s *Session) remove(due []*leftover) {
	err := s.removeTogether(due)
	if refused(err) && len(due) > 1 {
		for _, l := range due {
			s.settle([]*leftover{l}, s.removeTogether([]*leftover{l}))
		}
		return
	}
	s.settle(due, err)
}

func (s *Session) removeTogether(due []*leftover) error {
	limit := firstAttempt
	for _, l := range due {
		// As in Call: a server that is slow rather than gone needs more time.
		limit = max(limit, min(firstAttempt<<min(l.fails, 10), longAttempt))
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	// Keys under observation are read first: looking must not cost the cluster
	// a write. The others exist nearly always.
	var suspects []*leftover
	var reads, deletes []clientv3.Op
	for _, l := range due {
		if l.revision == 0 {
			suspects = append(suspects, l)
			// Not keys only: since 3.7 etcd leaves the lease out then.
			reads = append(reads, clientv3.OpGet(l.key))
			continue
		}
		deletes = append(deletes, deleteIf(l.key, clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.revision)))
	}
	if len(reads) > 0 {
		answer, err := s.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return err
		}
		for i, l := range suspects {
			for _, kv := range answer.Responses[i].GetResponseRange().Kvs {
				if clientv3.LeaseID(kv.Lease) != s.lease {
					continue // somebody else's
				}
				deletes = append(deletes, deleteIf(l.key, clientv3.Compare(clientv3.LeaseValue(l.key), "=", s.lease)))
				s.logger.Warn("removing a key that was created late", "key", l.key)
			}
		}
	}
	if len(deletes) == 0 {
		return nil
	}
	_, err := s.client.Txn(ctx).Then(deletes...).Commit()
	return err
}

// settle drops what is confirmed to be gone and says when to look at the rest.
func (s *Session) settle(looked []*leftover, err error) {
	now := time.Now()
	var gone []func()
	s.mu.Lock()
	for _, l := range looked {
		switch {
		case err != nil:
			l.fails++
			l.next = now.Add(jitter(min(firstPause<<min(l.fails, 10), longAttempt)))
		case l.revision == 0:
			l.fails = 0
			l.next = now.Add(jitter(min(max(now.Sub(l.since)/4, firstLook), longLook)))
		default:
			l.removed = true
			if l.gone != nil {
				gone = append(gone, l.gone)
			}
		}
	}
	s.leftover = slices.DeleteFunc(s.leftover, func(l *leftover) bool { return l.removed })
	s.mu.Unlock()
	for _, f := range gone {
		f()
	}
	if err != nil {
		s.logger.Warn("removing keys left behind failed, trying again", "keys", len(looked), "error", err)
	}
}

func deleteIf(key string, condition clientv3.Cmp) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{condition}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
}
