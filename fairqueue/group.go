package fairqueue

import (
	"context"
	"fmt"
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

// TooManyError says that a ticket has more places than one transaction can carry, or that more tickets have to be
// passed over. Nothing was written. Take fewer, or one lock in place of several.
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
