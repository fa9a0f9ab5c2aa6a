package fairqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// JoinAny is JoinAll for n of the places: Wait returns when n of the tickets are granted,
// and gives up the others, in one transaction. Then [Group.Chosen] tells which. Until then the
// loss of any is the loss of all.
//
// With more than 127 places, or more than etcd allows, it joins only a part of them, at least n,
// which chance decides anew for each call. Then Wait also looks about every 10 s (WithRecheck)
// whether n of the other places are free, and takes those if they are. Two groups are served in the order in
// which they joined only where they wait for the same place.
func JoinAny(ctx context.Context, source session.Source, n int, places ...Place) (*Group, error) {
	part := len(places)
	if part > maxPlaces {
		part = min(max(maxOperations/2, n), len(places))
	}
	for {
		g, err := join(ctx, source, places, someOf(len(places), part), n)
		var tooMany *TooManyError
		if part <= n || !errors.As(err, &tooMany) {
			return g, err
		}
		part = max(part/2, n)
	}
}

// someOf returns part of the numbers below n, chosen by chance, in ascending order.
func someOf(n, part int) []int {
	some := rand.Perm(n)[:part]
	slices.Sort(some)
	return some
}

// waitForAny waits in all queues at once, for the first of them.
func (g *Group) waitForAny(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	type result struct {
		ticket *Ticket
		err    error
	}
	results := make(chan result, len(g.tickets))
	var waiters sync.WaitGroup
	end := func() {
		stop()
		waiters.Wait()
	}
	defer end()
	for _, t := range g.tickets {
		waiters.Go(func() { results <- result{t, t.wait(waiting)} })
	}
	recheck := g.places[0].Queue.recheck
	look := time.NewTimer(request.Jitter(recheck))
	defer look.Stop()
	var chosen []*Ticket
	for len(chosen) < g.want {
		select {
		case r := <-results:
			if r.err != nil {
				return r.err
			}
			chosen = append(chosen, r.ticket)
		case <-look.C:
			tickets, err := g.tryElsewhere(ctx)
			if err == nil {
				end()
				_ = leave(ctx, g.tickets) // if that fails, it goes on in the background
				g.tickets = tickets
				return nil
			}
			if !errors.Is(err, ErrBusy) {
				return err
			}
			look.Reset(request.Jitter(recheck))
		}
	}
	end()
	rest := slices.DeleteFunc(slices.Clone(g.tickets), func(t *Ticket) bool { return slices.Contains(chosen, t) })
	if err := keep(ctx, chosen, rest); err != nil {
		return err
	}
	g.tickets = chosen
	return nil
}

// tryElsewhere takes tickets in places that g does not wait for, all at once, or returns ErrBusy.
func (g *Group) tryElsewhere(ctx context.Context) ([]*Ticket, error) {
	var elsewhere []Place
	var indices []int
	joined := g.Chosen()
	for i, p := range g.places {
		if !slices.Contains(joined, i) {
			elsewhere, indices = append(elsewhere, p), append(indices, i)
		}
	}
	if len(elsewhere) < g.want {
		return nil, ErrBusy
	}
	tickets, err := tryTogether(ctx, g.Session(), elsewhere, g.want, joinOptions{})
	for _, t := range tickets {
		t.place = indices[t.place]
	}
	return tickets, err
}
