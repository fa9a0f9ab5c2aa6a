package fairqueue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// enough is for how many waiters of a session it is worth it to read the whole queue for all of
// them, rather than two tickets for each.
const enough = 4

// sharedLimit is for an answer without which each asks: an attempt at a silent endpoint, and one more.
const sharedLimit = 10 * time.Second

// nearLimit is how many are asked for by name: with the one who asks, as many as share a request.
const nearLimit = joinLimit - 1

// picture is the queue at one revision, in order, as tickets of one session were shown it: all of it from
// a bit ahead of the first of them. Nobody is ever inserted ahead of them (invariant 2), so what is ahead of
// one later is among what was then, and can be asked for by name.
type picture struct {
	answer
	// owned is the revision of one of them that has owned, which says that nothing ahead of that is
	// there any more. It is of use to those behind it only: they ask for it too, and if an answer shows it gone,
	// the answer is later than that.
	owned atomic.Int64
}

// firstLook is look for a ticket whose join could not tell what is ahead of it. When many of one
// session ask that at the same time, they share the answer.
func (t *Ticket) firstLook(ctx context.Context) error {
	own := func() error { return t.look(ctx, t.me.revision) }
	if t.mode == Shared || t.mode == permit { // whose answers have values, or are different ones
		return t.session.InTurn(ctx, own)
	}
	p, err := session.Gather(ctx, t.session, string(t.queue.space), func(ctx context.Context, callers int) (*picture, error) {
		ctx, cancel := context.WithTimeout(ctx, sharedLimit)
		defer cancel()
		switch {
		case callers >= enough:
			return t.queue.everybody(ctx, t.session, t.me, callers)
		case callers > 1:
			return &picture{}, nil // that tells nobody anything
		}
		a, err := t.ask(ctx, 1, true)
		slices.Reverse(a.entries)
		return &picture{answer: a}, err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		t.learn(p.near(t.me, nearLimit), t.me.revision)
		if t.verdict != askFurther && t.verdict != askAgain {
			if p.length > joinLimit && len(p.entries) > enough { // everybody's
				t.picture = p
			}
			return nil
		}
	}
	// The answer was too large for this client, say.
	return t.session.InTurn(ctx, own)
}

// everybody reads the whole queue, as of now, for me and for others of its session, so many in all, who have
// probably joined last. What is farther ahead of them than they will ask for is left out, since the next ones
// get a picture of their own.
func (q *Queue) everybody(ctx context.Context, s *session.Session, me entry, callers int) (*picture, error) {
	var response *clientv3.GetResponse
	all := q.space.all()
	err := s.Call(ctx, func(ctx context.Context) (err error) { // not read: others' are not to wait for this one
		response, err = s.Client().Get(ctx, all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly())
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(entriesOf(response.Kvs), func(e entry) bool { return !q.space.blocks(e, Exclusive) })
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	p := &picture{answer: answer{revision: response.Header.Revision, entries: entries, length: response.Count}}
	own := strconv.FormatInt(int64(s.Lease()), 16)
	first := len(entries)
	for first > 0 && callers > 0 {
		if first--; q.space.owner(entries[first]) == own {
			callers--
		}
	}
	if first = max(min(first, p.index(me.revision))-nearLimit, 0); first > 0 {
		p.entries = slices.Clone(entries[first:])
		p.from = p.entries[0].revision
	}
	return p, nil
}

// near is what matters to me: itself, and those before it, from the last that is known to have owned, but
// only limit of them if there are more.
func (p *picture) near(me entry, limit int) answer {
	a := p.answer
	first, end := 0, p.index(me.revision+1)
	if owned := p.owned.Load(); 0 < owned && owned < me.revision {
		first, a.from = p.index(owned), 0
	}
	if least := end - 1 - limit; least > first {
		first = least
		a.from = a.entries[first].revision
	}
	a.entries = a.entries[first:end]
	return a
}

// index is where the tickets of a revision and of later ones begin.
func (p *picture) index(revision int64) int {
	i, _ := slices.BinarySearchFunc(p.entries, revision, func(e entry, revision int64) int { return cmp.Compare(e.revision, revision) })
	return i
}

// recall is look for one who knows who was ahead of it: it asks for those alone, or for the nearest
// limit of them. It reports whether that told enough.
func (t *Ticket) recall(ctx context.Context, least int64, limit int) bool {
	if t.picture == nil {
		return false
	}
	near := t.picture.near(t.me, limit)
	for _, local := range []bool{true, false} {
		reads := []clientv3.Op{clientv3.OpGet(t.me.key, t.mode.readOptions(local)...)}
		for _, e := range near.entries {
			if e.revision < t.me.revision {
				reads = append(reads, clientv3.OpGet(e.key, t.mode.readOptions(local)...))
			}
		}
		lists, revision, err := read(ctx, t.session, reads...)
		if err != nil {
			t.picture = nil // etcd may take no request with so many reads
			return false
		}
		a := answerOf(lists, revision)
		a.from, a.length = near.from, t.length
		verdict, nearest := t.queue.space.decide(t.me, t.mode, max(least, t.picture.revision), a)
		if verdict == askAgain {
			continue
		}
		t.seen = revision
		t.hear(verdict, nearest)
		return verdict != askFurther
	}
	return false
}

// nextKnows reports whether the next in line need not be told that me owned, since recall will do for it
// as well: an earlier ticket of its session, which will have owned, is not far ahead.
func (p *picture) nextKnows(me entry, s space) bool {
	if p == nil {
		return false
	}
	next := p.index(me.revision + 1)
	if next == len(p.entries) {
		return false
	}
	for _, e := range p.entries[max(next-nearLimit, 0):next] {
		if s.owner(e) == s.owner(p.entries[next]) {
			return true
		}
	}
	return false
}

// owner tells tickets of one session from others'.
func (s space) owner(e entry) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(e.key, string(s)), "-")
	return name[min(len(name), 1):] // without the mode
}
