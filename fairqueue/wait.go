package fairqueue

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// ErrGone says that a ticket is not there any more although its session, as far as can be
// known, is alive: somebody removed it, or it was passed over. It wraps
// [session.ErrLost]. To be in line again, join again.
var ErrGone = fmt.Errorf("%w: the ticket is not there any more", session.ErrLost)

// Wait waits until the ticket is granted. If it returns an error, the ticket has
// been given up, and what is left of it is removed in the background. It returns
// promptly with ctx's error when that ends, even if the grant comes at the same
// time; with [session.ErrLost] when the session or the ticket itself is lost; and
// with etcd's error if etcd refuses (permission denied).
//
// Whatever happens to a watch, the network or the members of the cluster is not an
// error: Wait looks again and goes on.
func (t *Ticket) Wait(ctx context.Context) error {
	needContext(ctx)
	err := t.wait(ctx)
	if err == nil {
		// The grant is worth nothing to one who has stopped waiting for it, or who
		// cannot trust its session.
		if err = t.session.Err(); err == nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		t.abandon()
		return t.failed(err)
	}
	return nil
}

func (t *Ticket) wait(ctx context.Context) error {
	w := t.watcher()
	for {
		switch t.verdict {
		case granted:
			if err := t.announce(ctx); err != nil {
				return err
			}
			return t.wakeNext(ctx)
		case gone:
			return ErrGone
		case tooHeavy:
			return t.permit.tooHeavy()
		case blocked, crowded:
			before := t.nearest
			news, err := w.await(ctx, t.obstacle(), t.seen)
			if err != nil {
				return err
			}
			if !news.changed {
				if same, err := t.unchanged(ctx, news.revision); err != nil {
					return err
				} else if same {
					continue
				}
			}
			if news.announced > 0 {
				err = t.succeed(ctx, news)
			} else {
				err = t.look(ctx, news.revision)
			}
			if err != nil {
				return err
			}
			if news.silent && (t.nearest != before || t.verdict == granted) {
				w.mistrust() // something happened and the watch did not tell
			}
		default: // the queue is long
			if err := t.firstLook(ctx); err != nil {
				return err
			}
		}
	}
}

// obstacle is what t has to wait for, according to the last answer.
func (t *Ticket) obstacle() obstacle {
	if t.mode == permit {
		return t.permitObstacle()
	}
	before := t.nearest
	var announced func(*clientv3.Event) int64
	if t.mode != Shared && t.length > joinLimit {
		announced = func(e *clientv3.Event) int64 { return t.queue.space.announced(before, e) }
	}
	return obstacle{
		announced: announced,
		length:    t.length >> min(t.quiet, 32), // it has not got longer, as far as t is concerned
		span:      span{first: before.key},
		puts:      t.mode == Shared,
		ends: func(e *clientv3.Event) bool {
			// Not an earlier key of its name.
			return e.Kv.ModRevision > before.revision && (e.Type == clientv3.EventTypeDelete || isMarked(e.Kv.Value))
		},
		stands: func(ctx context.Context, least int64) (bool, int64, error) { return t.present(ctx, before, least) },
	}
}

func (t *Ticket) hear(v verdict, nearest entry) { t.verdict, t.nearest = v, nearest }

func (t *Ticket) learn(a answer, least int64) {
	t.seen, t.length = a.revision, a.length
	t.hear(t.queue.space.decide(t.me, t.mode, least, a))
}

// unchanged reports whether t and the one it waits for are both still there. Without
// news a look is not worth its price: it reads the whole queue, and every waiter has a
// reason to look from time to time, or when a stream of watches breaks.
func (t *Ticket) unchanged(ctx context.Context, least int64) (bool, error) {
	if t.mode == permit {
		return false, nil
	}
	reads := []clientv3.Op{
		clientv3.OpGet(t.me.key, t.mode.readOptions(true)...),
		clientv3.OpGet(t.nearest.key, t.mode.readOptions(true)...),
	}
	questions := [][]clientv3.Op{reads}
	for _, other := range t.others {
		questions = append(questions, []clientv3.Op{clientv3.OpGet(other.me.key, clientv3.WithKeysOnly(), clientv3.WithSerializable())})
	}
	var lists []list
	var revision int64
	lost := false // one of the others, without which the rest is of no use
	err := readEach(ctx, t.session, questions, func(i int, answer []list, at int64) {
		if i == 0 {
			lists, revision = answer, at
		} else if at >= t.me.revision && (len(answer[0].entries) == 0 || !answer[0].entries[0].is(t.others[i-1].me)) {
			lost = true
		}
	})
	if err == nil && lost {
		return false, ErrGone
	}
	if err != nil || revision < max(least, t.me.revision) || len(lists[0].entries) == 0 || !lists[0].entries[0].is(t.me) || !lists[1].contains(t.nearest) {
		return false, err
	}
	t.seen = revision
	t.quiet++
	return true, nil
}

// look asks how things stand, at revision least or later. Any member may answer
// (invariant 2); only if its answer is too old is the quorum asked. The sorted
// answer is cut off behind the nearest blocker, which is enough unless keys of
// other queues are in between.
func (t *Ticket) look(ctx context.Context, least int64) error {
	if t.mode == permit {
		return t.count(ctx, least)
	}
	local := true
	for _, limit := range []int64{1, 64, 0} {
		for {
			a, err := t.ask(ctx, limit, local)
			if err != nil {
				return err
			}
			t.learn(a, least)
			if t.verdict != askAgain {
				break
			}
			if !local {
				return t.session.Link().WentBack(max(least, t.me.revision), a.revision)
			}
			local = false
		}
		if t.verdict != askFurther {
			return nil
		}
	}
	panic("fairqueue: an unlimited answer was cut off")
}

// ask reads the ticket itself and, of each span in which something may block it,
// the last limit keys created before it, all at one revision.
func (t *Ticket) ask(ctx context.Context, limit int64, local bool) (answer, error) {
	lists, revision, err := read(ctx, t.session, t.questions(limit, local)...)
	if err != nil {
		return answer{}, err
	}
	return answerOf(lists, revision), nil
}

// questions are the reads for that. An exclusive ticket lies in the one span that is asked
// about.
func (t *Ticket) questions(limit int64, local bool) (reads []clientv3.Op) {
	if t.mode == Shared {
		reads = append(reads, clientv3.OpGet(t.me.key, t.mode.readOptions(local)...))
	} else if limit > 0 {
		limit++
	}
	for _, span := range t.queue.space.blocking(t.mode) {
		reads = append(reads, clientv3.OpGet(span.first, append(t.mode.readOptions(local),
			clientv3.WithRange(span.end),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
			clientv3.WithMaxCreateRev(t.me.revision),
			clientv3.WithLimit(limit))...))
	}
	return reads
}

func answerOf(lists []list, revision int64) answer {
	a := answer{revision: revision}
	for _, l := range lists {
		a.length += l.count
		a.entries = append(a.entries, l.entries...)
		a.from = max(a.from, completeFrom(l.entries, l.more))
	}
	return a
}
