package fairqueue

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

// ReleaseAfter gives the ticket up in time d from now: until then others wait for it. Its keys
// move to a lease of their own. So they stay that long, and are removed then, even if
// this process ends first; the session only removes them in time. A value given by
// Set is not kept. Two round trips, two raft entries. Errors are as for Leave. If etcd does not answer, the ticket
// stays with the session for that time; if one of several keys is gone, the others are removed at once.
func (t *Ticket) ReleaseAfter(ctx context.Context, d time.Duration) error {
	parts := giveUp(t.parts)
	if len(parts) == 0 {
		return nil
	}
	end := time.Now().Add(d)
	err := moveToOwnLease(ctx, parts, end)
	left := time.Until(end)
	if errors.Is(err, ErrGone) {
		left = 0 // without it the others are of no use
	}
	for _, p := range parts {
		if errors.Is(err, ErrGone) && len(parts) == 1 {
			p.forget()
		} else {
			p.link().DiscardAfter(left, p.me.key, p.me.revision, p.forget)
		}
	}
	return t.failed(err)
}

func moveToOwnLease(ctx context.Context, parts []*part, end time.Time) error {
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	s := parts[0].session
	lease, err := s.Link().GrantLease(ctx, secondsIn(time.Until(end)))
	if err != nil {
		return err
	}
	puts := make([]clientv3.Op, len(parts))
	for i, p := range parts {
		value := p.value
		if p.shares.Load() {
			value = p.markedValue()
		}
		puts[i] = clientv3.OpPut(p.me.key, value, clientv3.WithLease(lease))
	}
	var there, doubtful bool
	err = s.Link().Call(ctx, func(ctx context.Context) error {
		answer, err := s.Client().Txn(ctx).If(guardsOf(parts)...).Then(puts...).Commit()
		if request.IsAnswer(err, rpctypes.ErrLeaseNotFound) {
			// Not the session's lease: the new one has expired before an attempt was answered. All
			// guards held, as etcd checks them first, so the tickets only have to be removed in
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
