package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// leaveTimeout bounds the wait until a member has left. What is not confirmed by then goes on in the background.
const leaveTimeout = 5 * time.Second

// batch is how long changes are collected.
const batch = 20 * time.Millisecond

// Run is a member for as long as ctx lasts. It takes the shards that are this member's, and calls work for each, in a
// goroutine of its own, while it owns the shard. Each process needs an id of its own, see [Group.Join]. A process that is
// restarted may use the same id again.
//
// The context of work has the values of ctx. It ends with ctx; with [ErrReassigned] as its cause if the shard goes to
// another member, which is in line for it already; or with the loss of the Hold, before another member can own the
// shard. Then work has to return: the shard is released when it has. If work returns nil before, it is called again after about
// half a second, under the same Hold. Its Hold may be used for guarded writes, and its token for others; do not unlock it.
//
// Run returns only
//
//   - when ctx has ended and all works have returned: an error that wraps ctx's cause, and those of works that are not a
//     context's;
//   - when a work returns an error although its Hold was not lost: that error, wrapped, after the other works were
//     stopped and all shards released. If the work was to stop, a context's error does not count;
//   - when a member that joined earlier has declared another number of shards ([*CountError]), or has the id ([ErrIDTaken]);
//   - when joining or locking fails for good, as for [Group.Keep].
//
// If a work panics, the others are stopped, all shards are released, and Run panics with a [*PanicError]. A loss of the
// session ends all works and nothing else: Run joins again. src should be a [session.Keeper]. End ctx, and let Run return,
// before the Keeper is closed. The package documentation has the cost.
func (s *Shards) Run(ctx context.Context, id string, work func(ctx context.Context, h *etcdlock.Hold, shard int) error) error {
	if work == nil {
		panic("coord: Run needs a function to work with")
	}
	if err := cmp.Or(s.ready(ctx), valid("id", id)); err != nil {
		return s.failed("run", err)
	}
	var failure error
	err := s.memberships().keep(ctx, id, s.declaration(), func(ctx context.Context, term *etcdlock.Term) error {
		if failure = s.serve(ctx, term, id, work); failure != nil {
			return errFailure
		}
		return nil
	})
	switch {
	case failure != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", context.Cause(ctx), failure)
	case failure != nil:
		err = failure
	}
	return s.failed("run", err)
}

// errFailure ends a membership. It is none of a context's, which would be taken for its end.
var errFailure = errors.New("a failure")

// tenure is one membership of a Run.
type tenure struct {
	shards *Shards
	id     string
	work   func(context.Context, *etcdlock.Hold, int) error

	ctx context.Context // ends with the membership, or with fail
	end context.CancelFunc

	view     view             // at the last look
	decided  []etcdlock.Token // the members of the last decision
	timer    *time.Timer      // of the next look
	pending  bool             // the timer runs
	settling bool             // for the settle time

	workers map[int]context.CancelCauseFunc // by shard
	running sync.WaitGroup
	ended   chan int // shards whose worker has ended; has room for all

	mu       sync.Mutex
	failure  error       // the first
	panicked *PanicError // nil: no work has
}

// serve is a member until ctx ends, and returns the failure that has ended it before, or came with the end.
func (s *Shards) serve(ctx context.Context, term *etcdlock.Term, id string, work func(context.Context, *etcdlock.Hold, int) error) error {
	client, err := s.client(ctx)
	if err != nil {
		return err
	}
	t := &tenure{shards: s, id: id, work: work, view: s.newView()}
	t.workers, t.ended = make(map[int]context.CancelCauseFunc), make(chan int, s.count)
	t.ctx, t.end = context.WithCancel(ctx)
	defer t.end()
	t.timer = time.NewTimer(0)
	t.timer.Stop()
	t.follow(client)
	t.timer.Stop()
	// The others hear of it while the works stop.
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = term.Resign(leaving) // a loss has ended ctx
	t.running.Wait()
	if t.panicked != nil {
		panic(t.panicked)
	}
	return t.failure
}

// fail ends t because of an error.
func (t *tenure) fail(err error) {
	defer t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = cmp.Or(t.failure, err)
}

// follow decides after changes, until t's context ends.
func (t *tenure) follow(client *clientv3.Client) {
	m := mirrorBelow(client, t.shards.shards())
	defer m.follow(t.ctx)()
	for t.ctx.Err() == nil {
		select {
		case <-m.news:
			t.schedule()
		case shard := <-t.ended:
			delete(t.workers, shard)
			t.schedule()
		case <-t.timer.C:
			if err := t.look(m); err != nil {
				t.fail(t.shards.explain(client, err))
			}
		case <-t.ctx.Done():
		}
	}
}

// schedule lets t look soon. During a reassignment there are many changes, and one look is for all that come meanwhile.
func (t *tenure) schedule() {
	if !t.pending {
		t.pending = true
		t.timer.Reset(batch)
	}
}

// look decides by what is known now, or, if members have come or gone, when the settle time is over.
func (t *tenure) look(m *mirror) error {
	known, wrong := false, error(nil)
	err := m.latest(func(keys tree, changed map[string]bool) {
		known, wrong = true, t.view.update(t.shards, t.id, keys, changed)
	})
	if err = cmp.Or(wrong, err); err != nil {
		return err
	}
	t.pending = false
	switch {
	case !known:
	case !t.settling && !slices.Equal(t.view.joined, t.decided):
		t.pending, t.settling = true, true
		t.timer.Reset(t.shards.options.settle)
	default:
		t.settling, t.decided = false, t.view.joined
		t.decide()
	}
	return nil
}

// decide starts and stops workers. If t's member is gone, that is a loss, which ends t.
func (t *tenure) decide() {
	if !slices.ContainsFunc(t.view.members, func(m candidate) bool { return m.id == t.id }) {
		return
	}
	own, keep := t.view.decide(t.id)
	for shard, stop := range t.workers {
		if !own[shard] && !keep[shard] {
			stop(ErrReassigned)
		}
	}
	for shard := range own {
		if t.workers[shard] == nil {
			t.start(shard)
		}
	}
}
