package fairqueue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

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

	value  string // of a candidate
	number int64  // its priority
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

// JoinAll takes a ticket in all of the queues, which must be different ones: one round trip, one raft
// entry. All keys have one revision, so what comes first is ahead in every queue, and no two tickets wait for
// each other. For more than 64 places it takes a read more, for more than
// 42 if all are shared up to four, after which Wait may need one more. All keys are bound to one
// session, of source. With no places it panics; with more than 127, or more than etcd allows, the
// error is a [*TooManyError]. Where etcd was told to allow less than 128 operations in a transaction, it
// may take a few requests more. Otherwise it is like [Queue.Join].
func JoinAll(ctx context.Context, source session.Source, places ...Place) (*Ticket, error) {
	return JoinAny(ctx, source, len(places), places...)
}

// JoinAny is JoinAll for n of the places: Wait returns when n of the keys are granted,
// and gives up the others, in one transaction. Then [Ticket.Chosen] returns which. Until then the
// loss of any is the loss of all.
//
// With more than 127 places, or more than etcd allows, it joins only a part of them, 64 or n, or fewer,
// at random for each call, and gets none of the others. Two tickets are served in the order in
// which they joined only where they wait for the same place.
func JoinAny(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	if err := checkPlaces(places, n); err != nil {
		return nil, err
	}
	joined := len(places)
	if joined > maxPlaces {
		joined = max(maxOperations/2, n)
	}
	for {
		some := rand.Perm(len(places))[:joined]
		slices.Sort(some)
		t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) {
			parts := make([]*part, joined)
			for i, index := range some {
				parts[i] = places[index].newPart(s, index)
			}
			t := newTicket(parts...)
			t.want = n
			return t, enqueue(ctx, parts)
		})
		if joined == n || !request.IsAnswer(err, rpctypes.ErrTooManyOps) {
			return t, refused(source, err, places, n)
		}
		joined = max(joined/2, n)
	}
}

// TryAny takes a ticket in n of the places, at random among those in which nothing is in the
// way, or returns [ErrBusy] if there are fewer: one read, which writes nothing, and one
// transaction if there are enough. If others are faster, it leaves the queues and begins again. Errors are as for JoinAll.
func TryAny(ctx context.Context, source session.Source, n int, places ...Place) (*Ticket, error) {
	if err := checkPlaces(places, n); err != nil {
		return nil, err
	}
	t, err := withSession(ctx, source, func(s *session.Session) (*Ticket, error) { return try(ctx, s, places, n) })
	return t, refused(source, err, places, n)
}

// refused is err as that of an attempt to join n of the places.
func refused(source session.Source, err error, places []Place, n int) error {
	if err == nil {
		return nil
	}
	if request.IsAnswer(err, rpctypes.ErrTooManyOps) {
		return &TooManyError{Places: n}
	}
	if len(places) == 1 {
		return places[0].Queue.failed(err)
	}
	prefixes := make([]string, len(places))
	for i, p := range places {
		prefixes[i] = string(p.Queue.space)
	}
	return failed(source, fmt.Sprintf("%d of %d queues", n, len(places)), err, prefixes...)
}

func (p Place) newPart(s *session.Session, index int) *part {
	part := p.Queue.newPart(s, p.Mode, p.value, p.number)
	part.place = index
	return part
}

// checkPlaces is for a ticket in n of the places.
func checkPlaces(places []Place, n int) error {
	if n < 1 || n > len(places) {
		panic(fmt.Sprintf("fairqueue: %d of %d places", n, len(places)))
	}
	for _, p := range places {
		p.Mode.mustBeJoinable()
		if err := cmp.Or(p.Queue.checkLabel(), checkValue(p.value)); err != nil {
			return err
		}
	}
	if n > maxPlaces {
		return &TooManyError{Places: n, Limit: maxPlaces}
	}
	return nil
}

// confirm reads whether all parts are there at once, at minRevision or later: those granted first may be gone by now.
func confirm(ctx context.Context, parts []*part, minRevision int64) error {
	tickets := make([]entry, len(parts))
	for i, p := range parts {
		tickets[i] = p.me
	}
	there, _, err := parts[0].present(tickets...)(ctx, minRevision)
	if err == nil && !there {
		err = ErrGone
	}
	return err
}

// waitForAny waits in all queues at once, and gives up those that are not among the first to be granted.
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
	var chosen []*part
	for len(chosen) < t.want {
		r := <-results
		if r.err != nil {
			return r.err
		}
		chosen = append(chosen, r.part)
	}
	end()
	rest := slices.DeleteFunc(slices.Clone(t.parts), func(p *part) bool { return slices.Contains(chosen, p) })
	t.parts = chosen
	_ = keysOf(rest).Leave(ctx) // if that fails, it goes on in the background
	return nil
}

// askAll looks for many parts at once, since the answer to their join did not say enough.
func askAll(ctx context.Context, parts []*part) error {
	questions := make([][]clientv3.Op, len(parts))
	for i, p := range parts {
		questions[i] = p.questions(1, false)
	}
	err := readEach(ctx, parts[0].session, questions, func(i int, lists []list, revision int64) {
		parts[i].learn(answerOf(lists, revision), parts[i].me.revision)
	})
	if err != nil {
		keysOf(parts).Abandon()
	}
	return err
}

// readEach asks several questions, of a few reads each, as many in a request as etcd lets a transaction carry.
// It calls answer for each, in order, with what was true at one revision.
func readEach(ctx context.Context, s *session.Session, questions [][]clientv3.Op, answer func(i int, lists []list, revision int64)) error {
	room := maxOperations
	for next := 0; next < len(questions); {
		reads := slices.Clone(questions[next])
		end := next + 1
		for ; end < len(questions) && len(reads)+len(questions[end]) <= room; end++ {
			reads = append(reads, questions[end]...)
		}
		lists, revision, err := read(ctx, s, reads...)
		switch {
		case request.IsAnswer(err, rpctypes.ErrTooManyOps) && end > next+1:
			room = len(reads) / 2
			continue
		case err != nil:
			return err
		}
		for ; next < end; next++ {
			count := len(questions[next])
			answer(next, lists[:count], revision)
			lists = lists[count:]
		}
	}
	return nil
}
