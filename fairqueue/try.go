package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
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
	_, _, _, err := create(ctx, tickets, true, link.Transaction{If: conditions, Then: then})
	if len(conditions) > len(tickets) && errors.Is(err, rpctypes.ErrTooManyOps) { // this etcd takes fewer
		rename(tickets)
		return joinOrLeave(ctx, tickets)
	}
	if err != nil {
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
		questions := make([][]clientv3.Op, len(asked))
		for i, index := range asked {
			questions[i] = places[index].question(limit)
		}
		err := readEach(ctx, s, questions, func(i int, lists []list, _ int64) {
			index := asked[i]
			switch state := places[index].state(lists); {
			case state == taken:
			case state == empty:
				free = append(free, index)
			case limit > 0:
				unsure = append(unsure, index) // who knows what is behind
			default:
				plain = false
				free = append(free, index)
			}
		})
		if err != nil {
			return nil, false, err
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

// question reads up to limit keys of each span in which something may be in the way.
func (p Place) question(limit int64) (reads []clientv3.Op) {
	for _, span := range p.Queue.space.blocking(p.Mode) {
		reads = append(reads, clientv3.OpGet(span.first,
			append(p.Mode.readOptions(false), clientv3.WithRange(span.end), clientv3.WithLimit(limit))...))
	}
	return reads
}

// state is what the answer to that tells.
func (p Place) state(lists []list) placeState {
	state := empty
	for _, l := range lists {
		for _, e := range l.entries {
			if p.Queue.space.blocks(e, p.Mode) {
				return taken
			}
			state = inhabited
		}
	}
	return state
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
