package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// try takes a ticket in n of the places, all granted at one revision, or returns ErrBusy.
func try(ctx context.Context, s *session.Session, places []Place, n int) (*Ticket, error) {
	for {
		free, empty, err := freePlaces(ctx, s, places)
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
			parts[i] = places[index].newPart(s, index)
		}
		err = takeFree(ctx, parts, empty)
		switch {
		case err == nil:
			return newTicket(parts...), nil
		case n == len(places) || !errors.Is(err, ErrBusy):
			return nil, err
		}
		// Another call was faster at one of them. Others may be free.
	}
}

// takeFree creates the keys of parts if nothing is in the way. If the places are known to be empty,
// that they still are is a condition.
func takeFree(ctx context.Context, parts []*part, empty bool) error {
	creation := creation(parts, nil)
	creation.If = nil
	for _, p := range parts {
		if p.mode == Shared { // foreign keys are where nothing must be
			creation.If = append(creation.If, p.absent())
		}
		for _, span := range p.queue.space.blocking(p.mode) {
			creation.If = append(creation.If, span.vacant())
		}
	}
	if !empty || len(creation.If) > maxPlaces {
		return joinOrLeave(ctx, parts)
	}
	_, _, err := create(ctx, parts, true, creation)
	if len(creation.If) > len(parts) && request.IsAnswer(err, rpctypes.ErrTooManyOps) { // this etcd takes fewer
		rename(parts)
		return joinOrLeave(ctx, parts)
	}
	if err != nil {
		return err
	}
	for _, p := range parts {
		p.verdict = granted
	}
	return nil
}

// joinOrLeave is for places that cannot be required to stay empty. Only if
// another ticket comes in between does it write for nothing.
func joinOrLeave(ctx context.Context, parts []*part) error {
	if err := enqueue(ctx, parts); err != nil {
		return err
	}
	free := true
	for _, p := range parts {
		if p.verdict == askFurther {
			if err := p.strategy.look(ctx, p, wakeup{revision: p.me.revision}); err != nil {
				abandon(parts)
				return err
			}
		}
		free = free && p.verdict == granted
	}
	if free {
		return nil
	}
	if err := leave(ctx, parts); err != nil {
		return err
	}
	return ErrBusy
}

// freePlaces lists the places in which nothing is in the way. They are not empty if there are keys nevertheless: of
// other queues below the prefix, which happens only with raw prefixes, or of an owner that shares.
func freePlaces(ctx context.Context, s *session.Session, places []Place) (free []int, empty bool, err error) {
	empty = true
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
			switch taken, keys := places[index].taken(lists); {
			case taken:
			case !keys:
				free = append(free, index)
			case limit > 0:
				unsure = append(unsure, index) // something behind what was read may be in the way
			default:
				empty = false
				free = append(free, index)
			}
		})
		if err != nil {
			return nil, false, err
		}
	}
	return free, empty, nil
}

// question reads up to limit keys of each span in which something may be in the way.
func (p Place) question(limit int64) (reads []clientv3.Op) {
	for _, span := range p.Queue.space.blocking(p.Mode) {
		reads = append(reads, clientv3.OpGet(span.first,
			append(p.Mode.readOptions(false), clientv3.WithRange(span.end), clientv3.WithLimit(limit))...))
	}
	return reads
}

// taken reports whether the answer to that has a ticket that is in the way, and whether it has any keys.
func (p Place) taken(lists []list) (taken, keys bool) {
	for _, l := range lists {
		for _, e := range l.entries {
			if p.Queue.space.blocks(e, p.Mode) {
				return true, true
			}
			keys = true
		}
	}
	return false, keys
}
