package fairqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// maxOperations is how much etcd lets a transaction carry, unless it was started with
// another --max-txn-ops.
const maxOperations = 128

// maxPlaces leaves room for the condition of an epoch.
const maxPlaces = maxOperations - 1

// Place is a queue and how to stand in it.
type Place struct {
	Queue *Queue
	Mode  Mode // Exclusive, Shared or Candidate; any other panics
}

// TooManyError says that a group has more places than one transaction can carry, or that more
// tickets have to be passed over. Nothing was written. Take fewer, or one lock that stands for
// several.
type TooManyError struct {
	Places int // or tickets
	Limit  int // 0 if etcd was told to carry less than by default, and only etcd knows how much
}

func (e *TooManyError) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("etcdlock: %d keys are more than this etcd's --max-txn-ops allows", e.Places)
	}
	return fmt.Sprintf("etcdlock: %d keys, and a transaction of etcd can carry %d", e.Places, e.Limit)
}

// Group is several tickets in as many queues, taken in one transaction, so that all have the
// same revision: whoever comes first is ahead in every queue, and no two groups wait for
// each other. Its methods are like those of [Ticket].
type Group struct {
	tickets []*Ticket
	// want is how many of them are wanted. What is too many is given up by Wait.
	want   int
	places []Place // all that may be chosen, if it was joined
}

// JoinAll puts a ticket into each of the queues, which must be different ones, at one
// revision: one round trip, one raft entry, and for more than 64 places a read more, for more than
// 42 if all are shared up to four, after which Wait may need one more. All are bound to one
// session, of source. With no places it panics; with more than 127, or more than etcd allows, the
// error is a [*TooManyError]. Where etcd was told to allow less than 128 operations in a transaction, it
// may take a few requests more. Otherwise it is like [Queue.Join].
func JoinAll(ctx context.Context, source session.Source, places ...Place) (*Group, error) {
	return join(ctx, source, places, someOf(len(places), len(places)), len(places))
}

// join puts tickets into the places of those indices, for n of them.
func join(ctx context.Context, source session.Source, places []Place, indices []int, n int) (*Group, error) {
	if err := check(places, n, len(indices)); err != nil {
		return nil, err
	}
	g, err := withSession(ctx, source, func(s *session.Session) (*Group, error) {
		tickets := make([]*Ticket, len(indices))
		for i, index := range indices {
			tickets[i] = places[index].Queue.newTicket(s, places[index].Mode, joinOptions{})
			tickets[i].place = index
		}
		if err := joinTogether(ctx, tickets); err != nil {
			return nil, tooMany(err, len(tickets))
		}
		for _, t := range tickets {
			t.others = tickets
		}
		return &Group{tickets: tickets, want: n, places: places}, nil
	})
	return g, denied(source, err, spacesOf(places)...)
}

// TryAny takes tickets in n of the places, chosen at random among those in which nothing is in the
// way, or returns [ErrBusy] if there are fewer, with nothing written: one read, and one
// transaction if there are enough; both again if others are faster. Errors are as for JoinAll.
func TryAny(ctx context.Context, source session.Source, n int, places ...Place) (*Group, error) {
	if err := check(places, n, n); err != nil {
		return nil, err
	}
	g, err := withSession(ctx, source, func(s *session.Session) (*Group, error) {
		tickets, err := tryTogether(ctx, s, places, n, joinOptions{})
		if err != nil {
			return nil, tooMany(err, n)
		}
		return &Group{tickets: tickets, want: n}, nil
	})
	return g, denied(source, err, spacesOf(places)...)
}

func spacesOf(places []Place) (spaces []space) {
	for _, p := range places {
		spaces = append(spaces, p.Queue.space)
	}
	return spaces
}

// check is for those who want n of the places and join as many as joined.
func check(places []Place, n, joined int) error {
	if n < 1 || n > len(places) {
		panic(fmt.Sprintf("fairqueue: %d of %d places", n, len(places)))
	}
	for _, p := range places {
		p.Mode.mustBeJoinable()
		if err := p.Queue.admit(p.Mode, joinOptions{}); err != nil {
			return err
		}
	}
	if joined > maxPlaces {
		return &TooManyError{Places: joined, Limit: maxPlaces}
	}
	return nil
}

func tooMany(err error, places int) error {
	if request.IsAnswer(err, rpctypes.ErrTooManyOps) {
		return &TooManyError{Places: places}
	}
	return err
}

// Key returns the key of the first ticket.
func (g *Group) Key() string { return g.tickets[0].Key() }

// Revision returns the create revision of all of them, which is their fencing token.
func (g *Group) Revision() int64 { return g.tickets[0].Revision() }

// Session returns the session that all are bound to.
func (g *Group) Session() *session.Session { return g.tickets[0].session }

// Chosen returns the indices of the places in which there are tickets, in ascending order.
func (g *Group) Chosen() []int {
	chosen := make([]int, len(g.tickets))
	for i, t := range g.tickets {
		chosen[i] = t.place
	}
	slices.Sort(chosen)
	return chosen
}

// Granted reports whether Wait has nothing to wait for. It may still have to ask whether all are there
// at once, if it took several reads to learn that.
func (g *Group) Granted() bool {
	return len(g.tickets) == g.want && !slices.ContainsFunc(g.tickets, func(t *Ticket) bool { return !t.Granted() })
}

// Guards returns a guard for every ticket; give all of them to a transaction.
func (g *Group) Guards() []clientv3.Cmp { return guardsOf(g.tickets) }

// Wait waits until as many tickets as were asked for are granted together. Waiting for all
// costs what it costs for each, one after the other, and one read more at the end, as it does
// when joining took several reads and something has happened in etcd between them; waiting
// for any, one goroutine and one watch for each place, and a transaction. Otherwise it is
// like [Ticket.Wait].
func (g *Group) Wait(ctx context.Context) error {
	err := g.wait(ctx)
	if err == nil {
		if err = g.Session().Err(); err == nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		abandon(g.tickets)
		return g.failed(err)
	}
	return nil
}

func (g *Group) wait(ctx context.Context) error {
	switch {
	case g.Granted() && g.seenTogether():
		return nil
	case g.want < len(g.tickets):
		return g.waitForAny(ctx)
	}
	for _, t := range g.tickets {
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
	// Those granted first may be gone by now, and that all are there must be true at once.
	reads := make([]clientv3.Op, len(g.tickets))
	for i, t := range g.tickets {
		reads[i] = clientv3.OpGet(t.me.key, clientv3.WithKeysOnly())
	}
	lists, _, err := read(ctx, g.Session(), reads...)
	if err != nil {
		return err
	}
	for i, t := range g.tickets {
		if len(lists[i].entries) == 0 || !lists[i].entries[0].is(t.me) {
			return ErrGone
		}
	}
	return nil
}

// seenTogether reports whether what is known of the tickets was true at one revision. To ask about
// many takes several reads, and between them the first may go and what the last waits for.
func (g *Group) seenTogether() bool {
	return !slices.ContainsFunc(g.tickets, func(t *Ticket) bool { return t.seen != g.tickets[0].seen })
}

// Leave gives all tickets up, in one transaction.
func (g *Group) Leave(ctx context.Context) error { return g.failed(leave(ctx, g.tickets)) }

// Abandon gives all tickets up without waiting for that. Once one of them is lost the others are
// of no use, and would keep those behind them waiting.
func (g *Group) Abandon() { abandon(g.tickets) }

// Linger gives them up in time d from now, as [Ticket.Linger] does, or at once if one of them is gone.
func (g *Group) Linger(ctx context.Context, d time.Duration) error {
	return g.failed(linger(ctx, g.tickets, d))
}

func (g *Group) failed(err error) error {
	if err != nil {
		var spaces []space
		for _, t := range g.tickets {
			spaces = append(spaces, t.queue.space)
		}
		return fmt.Errorf("tickets %s and others: %w", g.Key(), denied(g.Session(), err, spaces...))
	}
	return nil
}

// Lost is like [Ticket.Lost]: the loss of any is the loss of all. It takes one goroutine and
// one watch for each ticket.
func (g *Group) Lost(ctx context.Context) error {
	if len(g.tickets) == 1 {
		return g.tickets[0].Lost(ctx)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	losses := make(chan error, len(g.tickets))
	var watchers sync.WaitGroup
	for _, t := range g.tickets {
		watchers.Go(func() { losses <- t.Lost(watching) })
	}
	defer watchers.Wait()
	defer stop()
	return <-losses
}
