package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// StripedShop has split its stock into segments, each with a lock of its own.
type StripedShop struct {
	stock
	sessions session.Source
	locks    *etcdlock.Striped
}

// Sell implements Shop. As long as most segments have enough, whichever is free first will do.
// When stock runs short it takes segments that have enough between them. Either may have been
// emptied by the time they are locked; then it looks again, until the order has been sold or asks
// for more than there is. So all is sold, to the last unit, however it is scattered.
//
// AnyN for more and more segments would do that, too, but it would also wait for empty ones.
func (s StripedShop) Sell(ctx context.Context, order Order) error {
	for {
		seen, err := s.look(ctx, order)
		if err != nil || seen.sold {
			return err
		}
		enough, left := count(seen.segments, order.Units)
		if left < order.Units {
			return &TooFewError{order.Units, left, seen.revision} // which needs no lock: it stays true
		}
		if enough*2 > len(seen.segments) {
			err = s.locks.DoAnyN(ctx, 1, func(ctx context.Context, h *etcdlock.Hold, free []int) error {
				return s.sell(ctx, order, free, h.Txn)
			})
		} else {
			chosen := choose(seen.segments, order.Units)
			var locks []etcdlock.Lockable
			for _, i := range chosen {
				locks = append(locks, s.locks.Stripe(i))
			}
			err = etcdlock.Do(ctx, etcdlock.NewMulti(s.sessions, locks...), func(ctx context.Context, h *etcdlock.Hold) error {
				return s.sell(ctx, order, chosen, h.Txn)
			})
		}
		if tooFew := (*TooFewError)(nil); !errors.As(err, &tooFew) {
			return err
		}
	}
}

// count returns how many segments have enough, and what they all have together.
func count(segments []int, wanted int) (enough, left int) {
	for _, units := range segments {
		if units >= wanted {
			enough++
		}
		left += units
	}
	return enough, left
}

// choose returns one segment that has enough, or several that have it together. Chance decides
// which, so that not all customers run for the same.
func choose(segments []int, wanted int) (several []int) {
	missing := wanted
	for _, i := range rand.Perm(len(segments)) {
		switch {
		case segments[i] >= wanted:
			return []int{i}
		case segments[i] > 0 && missing > 0:
			several = append(several, i)
			missing -= segments[i]
		}
	}
	return several
}
