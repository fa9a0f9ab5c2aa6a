package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// try takes a ticket in n of the places, all granted at one revision, or returns ErrBusy. It joins only where a read
// shows nothing in the way. If another ticket comes in between, it leaves again. Of tickets that come together the
// first is granted, so calls do not hinder each other for ever.
func try(ctx context.Context, s *session.Session, places []Place, n int) (*Ticket, error) {
	for {
		free, err := freePlaces(ctx, s, places)
		if err != nil {
			return nil, err
		}
		if len(free) < n {
			return nil, ErrBusy
		}
		if n < len(places) { // so that calls at the same time do not all take the first
			rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		}
		parts := make([]*part, n)
		for i, index := range free[:n] {
			parts[i] = places[index].newPart(ctx, s, index, false)
		}
		if err = enqueue(ctx, parts); err == nil {
			err = grantedOrLeave(ctx, parts)
		}
		switch {
		case err == nil:
			return newTicket(parts...), nil
		case n == len(places) || !errors.Is(err, ErrBusy):
			return nil, err
		}
		// Another call was faster at one of them. Others may be free.
	}
}

// grantedOrLeave gives parts that have just joined up, and returns ErrBusy, unless all are granted.
func grantedOrLeave(ctx context.Context, parts []*part) error {
	free := true
	for _, p := range parts {
		if p.verdict == askFurther {
			if err := p.strategy.look(ctx, p, wakeup{revision: p.me.revision}); err != nil {
				keysOf(parts).Abandon()
				return err
			}
		}
		free = free && p.verdict == granted
	}
	if free {
		return nil
	}
	if err := keysOf(parts).Leave(ctx); err != nil {
		return err
	}
	return ErrBusy
}

// freePlaces lists the places in which nothing is in the way.
func freePlaces(ctx context.Context, s *session.Session, places []Place) (free []int, err error) {
	asked := make([]int, len(places))
	for i := range places {
		asked[i] = i
	}
	for _, limit := range []int64{1, 0} {
		questions := make([][]clientv3.Op, len(asked))
		for i, index := range asked {
			questions[i] = places[index].Queue.beginning(places[index].Mode, limit)
		}
		var unsure []int // something behind what was read may be in the way
		err := readEach(ctx, s, questions, func(i int, lists []list, _ int64) {
			switch taken, cutOff := places[asked[i]].taken(lists); {
			case taken:
			case cutOff:
				unsure = append(unsure, asked[i])
			default:
				free = append(free, asked[i])
			}
		})
		if err != nil {
			return nil, err
		}
		asked = unsure
	}
	return free, nil
}

// taken reports whether lists have a ticket that is in the way, and whether they were cut off.
func (p Place) taken(lists []list) (taken, cutOff bool) {
	for _, l := range lists {
		for _, e := range l.entries {
			if p.Queue.space.blocks(e, p.Mode) {
				return true, false
			}
		}
		cutOff = cutOff || l.more
	}
	return false, cutOff
}
