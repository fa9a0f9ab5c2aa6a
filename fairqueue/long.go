package fairqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

const (
	// longQueue is how many tickets make a look, which reads all of them, dearer than a put. Deleted
	// keys make it dear as well, until a compaction. So an owner whose predecessor was marked is marked too,
	// until there are no more tickets than a join brings back.
	longQueue = 512

	// markLimit bounds a mark, which only saves the successor a look.
	markLimit = time.Second

	// sharedLimit bounds a shared first look: one attempt at a silent endpoint, and one more.
	sharedLimit = 10 * time.Second

	// ownerMark begins the value of an exclusive ticket that has owned in a long queue: about how many
	// keys there were in it, and the ticket's revision, since a value may be copied.
	ownerMark = `{"mark":"owner %d at %d",`
)

// exclusive is the strategy of exclusive tickets. It differs from inOrder only in long queues.
type exclusive struct{}

// firstLook shares one read of the whole queue with other tickets of the session that ask at the same time.
func (exclusive) firstLook(ctx context.Context, p *part) error {
	a, err := link.Gather(ctx, p.link(), string(p.queue.space), func(ctx context.Context, callers int) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, sharedLimit)
		defer cancel()
		if callers > 1 {
			return p.queue.readWhole(ctx, p.session)
		}
		a, err := p.ask(ctx, 1, true)
		slices.Reverse(a.entries)
		return a, err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		p.learn(a.endingAt(p.me), p.me.revision)
		if p.verdict != askFurther && p.verdict != askAgain {
			return nil
		}
	}
	// The answer was too large for this client, for example.
	return inOrder{}.firstLook(ctx, p)
}

// readWhole reads all tickets, in order, as of now.
func (q *Queue) readWhole(ctx context.Context, s *session.Session) (answer, error) {
	lists, revision, err := read(ctx, s, q.beginning(Exclusive, 0)...)
	if err != nil {
		return answer{}, err
	}
	entries := slices.DeleteFunc(lists[0].entries, func(e entry) bool { return !q.space.blocks(e, Exclusive) })
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return answer{revision: revision, entries: entries, length: lists[0].count}, nil
}

// endingAt is the part of a that matters to me: the ticket itself and the entry before it. The entries of a are in
// order, and all of them block.
func (a answer) endingAt(me entry) answer {
	end, _ := slices.BinarySearchFunc(a.entries, me.revision+1, func(e entry, revision int64) int { return cmp.Compare(e.revision, revision) })
	start := max(end-2, 0)
	if start > 0 {
		a.completeSince = max(a.completeSince, a.entries[start].revision)
	}
	a.entries = a.entries[start:end]
	return a
}

// blocker asks for the value that the owner had at its end.
func (exclusive) blocker(p *part, parts []*part) blocker {
	b := inOrder{}.blocker(p, parts)
	b.previous = p.length > joinLimit
	return b
}

// look does not read the queue if the predecessor was marked as the owner of a long queue: since nothing was ahead of
// that, only p itself has to be there. That is the condition on which p is marked, too.
func (exclusive) look(ctx context.Context, p *part, since wakeup) error {
	if length := p.queue.space.markedLength(p.nearest, since.by); length > joinLimit && p.mode == Exclusive {
		p.length = length - 1
		if at := p.mark(ctx); at > since.revision {
			p.seen, p.verdict = at, granted
			return nil
		}
	}
	return inOrder{}.look(ctx, p, since)
}

// granted marks a ticket in a long queue, unless look has tried to. If that fails the successor looks.
func (exclusive) granted(ctx context.Context, p *part) error {
	if !p.marked && p.length >= longQueue {
		p.mark(ctx)
	}
	return nil
}

// mark writes that p owns. It returns the revision of that, or 0 if p may not be there.
func (p *part) mark(ctx context.Context) (at int64) {
	p.marked = true
	ctx, cancel := context.WithTimeout(ctx, markLimit)
	defer cancel()
	return p.key.SetFirst(ctx, fmt.Sprintf(ownerMark, p.length, p.me.revision)+strings.TrimPrefix(p.key.Value, "{"))
}

// markedLength returns the length in the mark of an owner whose deletion e is, or 0. The name
// has to be one of ours: other values are for others to choose.
func (s space) markedLength(owner entry, e *clientv3.Event) (length int64) {
	if e == nil || e.PrevKv == nil || e.PrevKv.CreateRevision != owner.revision {
		return 0
	}
	if _, _, ours := s.parts(owner.key); !ours || owner.key[len(s)] != byte(Exclusive) {
		return 0
	}
	var at int64
	if _, err := fmt.Sscanf(string(e.PrevKv.Value), ownerMark, &length, &at); err != nil || at != owner.revision {
		return 0
	}
	return length
}
