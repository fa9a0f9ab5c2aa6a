package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// tryTogether takes tickets in n of the places, all granted at one revision, or returns
// ErrBusy.
func tryTogether(ctx context.Context, s *session.Session, places []Place, n int, o joinOptions) ([]*Ticket, error) {
	for {
		free, plain, err := freePlaces(ctx, s, places)
		if err != nil {
			return nil, err
		}
		if len(free) < n {
			return nil, ErrBusy
		}
		if n < len(places) { // so that those who come together do not all take the first
			rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		}
		tickets, err := takeFree(ctx, s, places, free[:n], plain, o)
		if n < len(places) && errors.Is(err, ErrBusy) {
			continue // somebody was faster at one of them; others may be free
		}
		return tickets, err
	}
}

// takeFree takes tickets in the places of the given indices if they are still free.
func takeFree(ctx context.Context, s *session.Session, places []Place, free []int, plain bool, o joinOptions) ([]*Ticket, error) {
	tickets := make([]*Ticket, len(free))
	then := make([]clientv3.Op, len(free))
	var conditions []clientv3.Cmp
	for i, index := range free {
		t := places[index].Queue.newTicket(s, places[index].Mode, o)
		t.place = index
		tickets[i], then[i] = t, t.put()
		if t.mode == Shared { // others' keys are where nothing must be
			conditions = append(conditions, t.absent())
		}
		for _, span := range t.queue.space.blocking(t.mode) {
			conditions = append(conditions, span.vacant())
		}
	}
	if !plain || len(conditions) > maxPlaces {
		return joinOrLeave(ctx, tickets)
	}
	if _, _, _, err := create(ctx, tickets, true, session.Transaction{If: conditions, Then: then}); err != nil {
		return nil, err
	}
	for _, t := range tickets {
		t.verdict = granted
	}
	return tickets, nil
}

// freePlaces lists the places in which nothing is in the way. Plain is false if there are
// keys there nevertheless: of other queues below the prefix, which happens only with raw
// prefixes, or of an owner who shares. Then that the place stays empty cannot be a condition.
func freePlaces(ctx context.Context, s *session.Session, places []Place) (free []int, plain bool, err error) {
	plain = true
	unsure := make([]int, len(places))
	for i := range places {
		unsure[i] = i
	}
	for _, limit := range []int64{1, 0} {
		asked := unsure
		unsure = nil
		for len(asked) > 0 {
			batch := asked[:min(len(asked), maxOperations/2)]
			asked = asked[len(batch):]
			states, err := inquire(ctx, s, places, batch, limit)
			if err != nil {
				return nil, false, err
			}
			for i, index := range batch {
				switch {
				case states[i] == taken:
				case states[i] == empty:
					free = append(free, index)
				case limit > 0:
					unsure = append(unsure, index) // who knows what is behind
				default:
					plain = false
					free = append(free, index)
				}
			}
		}
	}
	return free, plain, nil
}

// placeState is what a read tells of a place.
type placeState int

const (
	empty     placeState = iota + 1
	taken                // by one who is in the way
	inhabited            // only by what is not, as far as the answer goes
)

func inquire(ctx context.Context, s *session.Session, places []Place, batch []int, limit int64) ([]placeState, error) {
	var reads []clientv3.Op
	for _, index := range batch {
		p := places[index]
		for _, span := range p.Queue.space.blocking(p.Mode) {
			reads = append(reads, clientv3.OpGet(span.first,
				append(p.Mode.readOptions(false), clientv3.WithRange(span.end), clientv3.WithLimit(limit))...))
		}
	}
	lists, _, err := read(ctx, s, reads...)
	if err != nil {
		return nil, err
	}
	states := make([]placeState, len(batch))
	for i, index := range batch {
		p := places[index]
		states[i] = empty
		for range p.Queue.space.blocking(p.Mode) {
			for _, e := range lists[0].entries {
				if p.Queue.space.blocks(e, p.Mode) {
					states[i] = taken
				} else if states[i] == empty {
					states[i] = inhabited
				}
			}
			lists = lists[1:]
		}
	}
	return states, nil
}

// joinOrLeave tries where it cannot be a condition that nothing is in the way. Only if
// somebody comes in between does it write for nothing.
func joinOrLeave(ctx context.Context, tickets []*Ticket) ([]*Ticket, error) {
	if err := joinTogether(ctx, tickets); err != nil {
		return nil, err
	}
	all := true
	for _, t := range tickets {
		if t.verdict == askFurther {
			if err := t.look(ctx, t.me.revision); err != nil {
				abandon(tickets)
				return nil, err
			}
		}
		all = all && t.verdict == granted
	}
	if all {
		return tickets, nil
	}
	if err := leave(ctx, tickets); err != nil {
		return nil, err
	}
	return nil, ErrBusy
}
