package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const (
	// maxOperations is how much etcd lets a transaction carry, unless it was started with
	// another --max-txn-ops.
	maxOperations = 128

	// maxPlaces leaves room for the condition of an epoch.
	maxPlaces = maxOperations - 1
)

// Place is a queue and how to stand in it.
type Place struct {
	Queue *Queue
	Mode  Mode // Exclusive, Shared or Candidate; any other panics
}

// TooManyError says that a ticket has more places than one transaction can carry, or that more
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

func tooMany(err error, places int) error {
	if request.IsAnswer(err, rpctypes.ErrTooManyOps) {
		return &TooManyError{Places: places}
	}
	return err
}

// JoinAll takes a ticket in all of the queues, which must be different ones: one round trip, one raft
// entry. All keys have one revision, so what comes first is ahead in every queue, and no two tickets wait for
// each other. For more than 64 places it takes a read more, for more than
// 42 if all are shared up to four, after which Wait may need one more. All keys are bound to one
// session, of source. With no places it panics; with more than 127, or more than etcd allows, the
// error is a [*TooManyError]. Where etcd was told to allow less than 128 operations in a transaction, it
// may take a few requests more. Otherwise it is like [Queue.Join].
func JoinAll(ctx context.Context, source session.Source, places ...Place) (*Ticket, error) {
	return joinSome(ctx, source, places, someOf(len(places), len(places)), len(places))
}

// JoinAny is JoinAll for n of the places: Wait returns when n of the keys are granted,
// and gives up the others, in one transaction. Then [Ticket.Chosen] returns which. Until then the
// loss of any is the loss of all.
//
// With more than 127 places, or more than etcd allows, it joins only a part of them, at least n,
// at random for each call. Then Wait also looks about every 10 s (WithRecheck)
// whether n of the other places are free, and takes those if they are. Two tickets are served in the order in
// which they joined only where they wait for the same place.
func JoinAny(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	part := len(places)
	if part > maxPlaces {
		part = min(max(maxOperations/2, n), len(places))
	}
	for {
		t, err := joinSome(ctx, source, places, someOf(len(places), part), n)
		var tooMany *TooManyError
		if part <= n || !errors.As(err, &tooMany) {
			return t, err
		}
		part = max(part/2, n)
	}
}

// TryAny takes a ticket in n of the places, at random among those in which nothing is in the
// way, or returns [ErrBusy] if there are fewer: one read, which writes nothing, and one
// transaction if there are enough. If others are faster, it leaves the queues and begins again. Errors are as for JoinAll.
func TryAny(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	err := check(places, n, n)
	if err != nil {
		return nil, err
	}
	t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) {
		t, err := try(ctx, s, places, n)
		return t, tooMany(err, n)
	})
	return t, denied(source, err, spacesOf(places)...)
}

// joinSome joins the places of those indices, for n of them.
func joinSome(ctx context.Context, source session.Source, places []Place, indices []int, n int) (*Ticket, error) {
	if err := check(places, n, len(indices)); err != nil {
		return nil, err
	}
	t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) {
		parts := make([]*part, len(indices))
		for i, index := range indices {
			parts[i] = places[index].newPart(s, index)
		}
		t := newTicket(parts...)
		t.want, t.places = n, places
		return t, tooMany(enqueue(ctx, parts), len(parts))
	})
	return t, denied(source, err, spacesOf(places)...)
}

func (p Place) newPart(s *session.Session, index int) *part {
	part := p.Queue.newPart(s, p.Mode, "", 0)
	part.place = index
	return part
}

func spacesOf(places []Place) (spaces []space) {
	for _, p := range places {
		spaces = append(spaces, p.Queue.space)
	}
	return spaces
}

// check is for n of the places, of which as many as joined are joined.
func check(places []Place, n, joined int) error {
	if n < 1 || n > len(places) {
		panic(fmt.Sprintf("fairqueue: %d of %d places", n, len(places)))
	}
	for _, p := range places {
		p.Mode.mustBeJoinable()
		if err := p.Queue.admit(""); err != nil {
			return err
		}
	}
	if joined > maxPlaces {
		return &TooManyError{Places: joined, Limit: maxPlaces}
	}
	return nil
}

// someOf returns part of the numbers below n, chosen by chance, in ascending order.
func someOf(n, part int) []int {
	some := rand.Perm(n)[:part]
	slices.Sort(some)
	return some
}

// seenTogether reports whether what is known of the parts was true at one revision. To ask about
// many takes several reads, and between them the first may go and what the last waits for.
func (t *Ticket) seenTogether() bool {
	return !slices.ContainsFunc(t.parts, func(p *part) bool { return p.seen != t.first().seen })
}

// confirm reads whether all parts are there at once: those granted first may be gone by now.
func (t *Ticket) confirm(ctx context.Context) error {
	reads := make([]clientv3.Op, len(t.parts))
	for i, p := range t.parts {
		reads[i] = clientv3.OpGet(p.me.key, clientv3.WithKeysOnly())
	}
	lists, _, err := read(ctx, t.Session(), reads...)
	for i, l := range lists {
		if !l.contains(t.parts[i].me) {
			return ErrGone
		}
	}
	return err
}

// waitForAny waits in all queues at once, for the first of them.
func (t *Ticket) waitForAny(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	type result struct {
		part *part
		err  error
	}
	results := make(chan result, len(t.parts))
	var waiters sync.WaitGroup
	end := func() {
		stop()
		waiters.Wait()
	}
	defer end()
	for _, p := range t.parts {
		waiters.Go(func() { results <- result{p, p.wait(waiting, t.parts)} })
	}
	recheck := t.places[0].Queue.recheck
	look := time.NewTimer(request.Jitter(recheck))
	defer look.Stop()
	var chosen []*part
	for len(chosen) < t.want {
		select {
		case r := <-results:
			if r.err != nil {
				return r.err
			}
			chosen = append(chosen, r.part)
		case <-look.C:
			parts, err := t.tryElsewhere(ctx)
			if err == nil {
				end()
				_ = leave(ctx, t.parts) // if that fails, it goes on in the background
				t.parts = parts
				return nil
			}
			if !errors.Is(err, ErrBusy) {
				return err
			}
			look.Reset(request.Jitter(recheck))
		}
	}
	end()
	rest := slices.DeleteFunc(slices.Clone(t.parts), func(p *part) bool { return slices.Contains(chosen, p) })
	if err := leaveRest(ctx, chosen, rest); err != nil {
		return err
	}
	t.parts = chosen
	return nil
}

// tryElsewhere takes parts in places that t does not wait for, all at once, or returns ErrBusy.
func (t *Ticket) tryElsewhere(ctx context.Context) ([]*part, error) {
	var elsewhere []Place
	var indices []int
	joined := t.Chosen()
	for i, p := range t.places {
		if !slices.Contains(joined, i) {
			elsewhere, indices = append(elsewhere, p), append(indices, i)
		}
	}
	if len(elsewhere) < t.want {
		return nil, ErrBusy
	}
	other, err := try(ctx, t.Session(), elsewhere, t.want)
	if err != nil {
		return nil, err
	}
	for _, p := range other.parts {
		p.place = indices[p.place]
	}
	return other.parts, nil
}
