package keys

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// longestLease is the greatest TTL that etcd grants, in seconds: 285 years.
const longestLease = 9_000_000_000

// Set replaces the value, if the key is still there and has not been given up. Concurrent calls take turns. If ctx ends
// before etcd answers, the value may have been replaced or not, or may yet be, but no more once a later Set has
// returned nil.
func (k *Key) Set(ctx context.Context, value string) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if done, _, err := k.replace(ctx, value, nil); done || err != nil {
			return err
		}
	}
}

// PutBack sets the value in the background, after a failed Replace, until the key is gone or the session ends. It has the
// turn when it returns. So later calls come after it, and attempts of earlier ones that arrive late change nothing. If another
// PutBack has the turn, that is enough: the failed call has waited for it, and sent nothing.
func (k *Key) PutBack(value string) {
	select {
	case k.turn <- struct{}{}:
	default:
		return
	}
	started := k.link().Start(func(ctx context.Context) {
		defer func() { <-k.turn }()
		for {
			done, _, err := k.replace(ctx, value, nil)
			if done || err != nil && !request.IsAnswer(err, rpctypes.ErrNoSpace) {
				return
			}
			if err != nil {
				request.Sleep(ctx, ctx, request.Jitter(time.Second))
			}
		}
	})
	if !started {
		<-k.turn
	}
}

// Replace is Set on further conditions and with further writes. If done is false, a condition did not hold at revision at, and
// nothing was written. If done is true and at is 0, an attempt whose answer was lost, of this call or an earlier one, has
// written the value, and this one nothing.
func (k *Key) Replace(ctx context.Context, value string, conditions []clientv3.Cmp, more ...clientv3.Op) (done bool, at int64, err error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return false, 0, ctx.Err()
	}
	return k.replace(ctx, value, conditions, more...)
}

// replace requires the turn.
func (k *Key) replace(ctx context.Context, value string, conditions []clientv3.Cmp, more ...clientv3.Op) (done bool, at int64, err error) {
	seen := k.written
	conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(k.Name), "=", seen))
	writes := append(more, clientv3.OpPut(k.Name, value, clientv3.WithLease(k.session.Lease())))
	var answer *clientv3.TxnResponse
	err = k.link().Call(ctx, func(ctx context.Context) (err error) {
		answer, err = k.session.Client().Txn(ctx).If(conditions...).Then(writes...).Else(clientv3.OpGet(k.Name)).Commit()
		return err
	})
	switch {
	case err != nil:
		return false, 0, err
	case answer.Succeeded:
		k.written = answer.Header.Revision
		return true, k.written, nil
	}
	own := answer.Responses[0].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != k.Revision || k.Left() {
		return false, 0, ErrGone // or given up by ReleaseAfter, which is not to be undone
	}
	k.written = own[0].ModRevision
	if k.written != seen && string(own[0].Value) == value && clientv3.LeaseID(own[0].Lease) == k.session.Lease() {
		return true, 0, nil
	}
	return false, answer.Header.Revision, nil
}

// SetFirst replaces the value with which the key was created, and returns the revision of that. It returns 0 if the key
// may not be there, or has another value: if an attempt arrives late, Set or ReleaseAfter may have written. It must have
// returned before Set is called.
func (k *Key) SetFirst(ctx context.Context, value string) (at int64) {
	_ = k.link().Call(ctx, func(ctx context.Context) error {
		answer, err := k.session.Client().Txn(ctx).
			If(k.Guard(), clientv3.Compare(clientv3.Version(k.Name), "=", 1)).
			Then(clientv3.OpPut(k.Name, value, clientv3.WithLease(k.session.Lease()))).Commit()
		if err == nil && answer.Succeeded {
			at = answer.Header.Revision
			k.written = at
		}
		return err
	})
	return at
}

// Leave deletes, in one transaction, those of the keys that have not been given up yet. The error is ErrGone if one of
// them was not there. If etcd does not answer before ctx ends, the session goes on. Even if ctx is over, or ends at
// once, etcd gets a quarter of a second.
func (ks Keys) Leave(ctx context.Context) error {
	ks = ks.giveUp()
	if len(ks) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(ks))
	for i, k := range ks {
		deletes[i] = clientv3.OpDelete(k.Name)
	}
	var readBack []clientv3.Op
	if len(ks) > 1 {
		readBack = ks.reads() // which of them are there, if not all
	}
	ctx, cancel := request.Grace(ctx) // a context derived from the hold ends with it, which may be at this moment
	defer cancel()
	answer, doubts, err := ks[0].link().Commit(ctx, link.Transaction{If: ks.Guards(), Then: deletes, Else: readBack, Late: ks.leaveAnswered})
	if request.IsInFlight(err) {
		return err
	}
	ks.leaveAnswered(answer, err)
	if err == nil && !answer.Succeeded && (doubts == 0 || ks.anyThere(answer)) {
		return ErrGone
	}
	return err
}

// leaveAnswered records what has become of the transaction that deletes the keys.
func (ks Keys) leaveAnswered(answer *clientv3.TxnResponse, err error) {
	for _, k := range ks {
		if err != nil || !answer.Succeeded && len(ks) > 1 { // one may be gone, and the others not
			k.discard()
		} else {
			k.forget()
		}
	}
}

// anyThere is about several keys of which not all were there. An earlier attempt, whose answer was lost,
// removed all of them or none.
func (ks Keys) anyThere(answer *clientv3.TxnResponse) bool {
	for i, response := range answer.Responses {
		if kvs := response.GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].CreateRevision == ks[i].Revision {
			return true
		}
	}
	return false
}

// ReleaseAfter gives up, in time d from now, those of the keys that have not been given up yet. They move to a lease of
// their own, with the values given for all. If etcd does not answer, they stay with the session for that time; if one
// of several is gone, the others are removed at once.
func (ks Keys) ReleaseAfter(ctx context.Context, d time.Duration, value func(*Key) string) error {
	if ks = ks.giveUp(); len(ks) == 0 {
		return nil
	}
	end := time.Now().Add(d)
	err := ks.moveToOwnLease(ctx, end, value)
	left := time.Until(end)
	switch {
	case errors.Is(err, ErrGone) && len(ks) == 1:
		ks.forget()
		return err
	case errors.Is(err, ErrGone):
		left = 0 // without it the others are of no use
	}
	for _, k := range ks {
		k.link().DiscardAfter(left, k.Name, k.Revision, k.forget)
	}
	return err
}

func (ks Keys) moveToOwnLease(ctx context.Context, end time.Time, value func(*Key) string) error {
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	s := ks[0].session
	var granted *clientv3.LeaseGrantResponse
	err := s.Link().Call(ctx, func(ctx context.Context) (err error) {
		granted, err = s.Client().Grant(ctx, secondsIn(time.Until(end)))
		return err
	})
	if err != nil {
		return err // a lease whose grant was not answered has no keys, and expires at the end
	}
	puts := make([]clientv3.Op, len(ks))
	for i, k := range ks {
		puts[i] = clientv3.OpPut(k.Name, value(k), clientv3.WithLease(granted.ID))
	}
	var there, doubtful bool
	err = s.Link().Call(ctx, func(ctx context.Context) error {
		answer, err := s.Client().Txn(ctx).If(ks.Guards()...).Then(puts...).Commit()
		if request.IsAnswer(err, rpctypes.ErrLeaseNotFound) {
			// Not the session's lease: the new one has expired before an attempt was answered. All
			// guards held, as etcd checks them first, so the keys only have to be removed in
			// time.
			there = true
			return nil
		}
		doubtful = doubtful || request.Doubtful(err)
		there = err == nil && answer.Succeeded
		return err
	})
	if err == nil && !there && !(doubtful && time.Until(end) <= 0) { // otherwise removed with that lease
		return ErrGone
	}
	return err // if it is doubtful, they may have moved, or may yet
}

// secondsIn rounds up, to what etcd grants.
func secondsIn(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return min(seconds, longestLease)
}
