package keys

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// longestLease is the greatest TTL that etcd grants, in seconds: 285 years.
const longestLease = 9_000_000_000

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
	lease, err := s.Link().GrantLease(ctx, secondsIn(time.Until(end)))
	if err != nil {
		return err
	}
	puts := make([]clientv3.Op, len(ks))
	for i, k := range ks {
		puts[i] = clientv3.OpPut(k.Name, value(k), clientv3.WithLease(lease))
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
	switch {
	case err == nil && (there || doubtful && time.Until(end) <= 0): // removed with that lease
		return nil
	case err == nil:
		err = ErrGone
	case request.Doubtful(err):
		return err // and they may have moved, or may yet
	}
	s.Link().RevokeLease(lease)
	return err
}

// secondsIn rounds up, to what etcd grants.
func secondsIn(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return min(seconds, longestLease)
}
